"""A forecast that somebody asked for: what is kept of it, and how an advice becomes one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from driftwatch.knobs import KNOBS
from driftwatch.notify.numbers import clean, cut, percent, setting, span
from driftwatch.recommend.advice import Advice, Candidate
from driftwatch.recommend.words import aims, capacity_gain, share_in_target, what_if_text
from driftwatch.web.page import Part

_LONGEST = 600


class ForecastRow(Part):
    """The same traffic under other settings; what is unknown is null, with a reason."""

    label: str
    is_advised: bool
    in_target_ratio: float | None
    ttft_p95_seconds: float | None
    itl_p99_seconds: float | None
    kv_cache_peak_ratio: float | None
    capacity_requests_per_second: float | None
    capacity_low_requests_per_second: float | None
    capacity_high_requests_per_second: float | None
    reasons: tuple[str, ...]


class Forecast(Part):
    """A what-if of one incident."""

    forecast_id: str
    incident_id: str
    target: str
    by: str
    at: datetime = Field(description="when it was asked for")
    traffic_until: datetime = Field(description="end of the minutes whose traffic is simulated")
    what_if: dict[str, float]
    state: Literal["waiting", "answered", "no forecast"]
    answers: tuple[str, ...] = Field(
        default=(), description="what each would bring, or why none is known"
    )
    advice: str | None = Field(default=None, description="what driftwatch itself would change")
    rows: tuple[ForecastRow, ...] = ()
    reasons: tuple[str, ...] = Field(default=(), description="why a number is unknown in every row")
    basis: tuple[str, ...] = Field(default=(), description="what it rests on, a sentence each")

    @property
    def question(self) -> str:
        """What was asked about, in words: ``max_num_seqs 64 or 2 replicas``."""
        knobs = {name: value for name, value in self.what_if.items() if name in KNOBS}
        others = {name: value for name, value in self.what_if.items() if name not in KNOBS}
        parts = [_label(knobs)] if knobs else []
        return " or ".join([*parts, *(what_if_text(*one) for one in sorted(others.items()))])


def forecast_of(request: Forecast, advice: Advice) -> Forecast:
    """The forecast that an advice is; without one where nothing was simulated."""
    why = clean(advice.recommendation.why)
    own = [one for one in advice.what_ifs if set(one.knobs) & set(request.what_if)]
    if advice.today is None or not own:
        checks = tuple(clean(gate.said) for gate in advice.gates if not gate.passed and gate.said)
        return request.model_copy(
            update={
                "state": "no forecast",
                "answers": (cut(why, _LONGEST),),
                "basis": tuple(cut(one, _LONGEST) for one in checks if one != why),
            }
        )
    others = [one for one in advice.what_ifs if one not in own]
    advised = [advice.advised] if advice.advised is not None else []
    tried = [dict(one.knobs) for one in own]
    rows = [advice.today, *own, *(one for one in advised if dict(one.knobs) not in tried), *others]
    shared = set.intersection(*(set(_reasons(one)) for one in rows))
    return request.model_copy(
        update={
            "state": "answered",
            "answers": tuple(_sentence(one, advice) for one in own),
            "advice": _advice(advice),
            "rows": tuple(_row(one, advice, shared) for one in rows),
            "reasons": tuple(one for one in _reasons(advice.today) if one in shared),
            "basis": tuple(cut(clean(one), _LONGEST) for one in _basis(advice)),
        }
    )


def without_answer(request: Forecast, why: str) -> Forecast:
    """The forecast that there is none, and why."""
    return request.model_copy(
        update={"state": "no forecast", "answers": (cut(clean(why), _LONGEST),)}
    )


def _label(knobs: Mapping[str, float]) -> str:
    return ", ".join(what_if_text(*one) for one in sorted(knobs.items())) or "today's settings"


def _sentence(one: Candidate, advice: Advice) -> str:
    """``max_num_seqs 64: 40 % → 99 % of requests in target, capacity 11.7 → 20.9 req/s``."""
    label = _label(one.knobs)
    if one.refused is not None:
        return clean(f"{label}: not possible, {one.refused}")
    today, parts = advice.today, []
    if one.in_target_ratio is not None:
        before = None if today is None else today.in_target_ratio
        was = "" if before is None else f"{percent(before)} → "
        parts.append(f"{was}{share_in_target(one.in_target_ratio, advice.slo)}")
    if today is not None and (gain := capacity_gain(today, one)) is not None:
        parts.append(gain)
    return f"{label}: {', '.join(parts) or 'unknown'}"


def _advice(advice: Advice) -> str:
    answer = advice.recommendation
    if answer.action == "change":
        moves = ", ".join(
            setting(move.knob, move.from_value, move.to_value, move.from_provenance)
            for move in answer.moves
        )
        return cut(clean(f"set {moves}"), _LONGEST)
    return cut(clean(answer.why), _LONGEST)


def _reasons(one: Candidate) -> tuple[str, ...]:
    """Why it is refused, or some of its numbers are unknown."""
    reasons = [one.refused] if one.refused is not None else [*one.reasons.values()]
    return tuple(dict.fromkeys(cut(clean(why), _LONGEST) for why in reasons))


def _row(one: Candidate, advice: Advice, shared: Collection[str]) -> ForecastRow:
    advised = advice.advised
    return ForecastRow(
        label=clean(_label(one.knobs)),
        is_advised=advised is not None and dict(advised.knobs) == dict(one.knobs),
        in_target_ratio=one.in_target_ratio,
        ttft_p95_seconds=one.ttft_p95_seconds,
        itl_p99_seconds=one.itl_p99_seconds,
        kv_cache_peak_ratio=one.kv_cache_peak_ratio,
        capacity_requests_per_second=one.capacity_requests_per_second,
        capacity_low_requests_per_second=one.capacity_low_requests_per_second,
        capacity_high_requests_per_second=one.capacity_high_requests_per_second,
        reasons=tuple(why for why in _reasons(one) if why not in shared),
    )


def _basis(advice: Advice) -> Iterator[str]:
    if advice.window_seconds is not None:
        when = span(advice.at - timedelta(seconds=advice.window_seconds), advice.at)
        yield f"{advice.requests:,} requests, {when}, rebuilt from metrics"
    judged = "requests that start within 1 s" if advice.slo is None else aims(advice.slo)
    yield f"in target: {judged}"
    yield from advice.notes
