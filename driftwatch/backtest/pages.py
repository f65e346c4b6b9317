"""The pages of a backtest: leaf and line 1 as the live pipeline writes them, advice as stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.backtest.stored import StoredDays
from driftwatch.collect.schema import KEY, TIME
from driftwatch.model import Incident, Severity, TargetKey, Transition
from driftwatch.notify.advice import imperatives
from driftwatch.pipeline.evaluation import Evaluation, no_signals
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.pages import with_pages
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import State, Stretch
from driftwatch.pipeline.window_evidence import TEN_MINUTES, minute_evidence, window_evidence
from driftwatch.store.minutes import MINUTE

# An incident of the service is that of a page whose times are as near.
_NEAR = timedelta(minutes=10)


def with_past_pages(
    days: StoredDays,
    plan: Plan,
    stretch: Stretch,
    before: Mapping[str, Incident],
    happened: Sequence[Transition],
    after: Mapping[str, Incident],
) -> tuple[tuple[Transition, ...], Mapping[str, Incident]]:
    """What happened in a stretch with its pages, and the open incidents with theirs.

    Nothing is simulated.
    """
    if not happened:
        return (), after
    ends = sorted({t.at for t in happened})
    pools = {t.incident.target.get("pool") for t in happened}
    keys = [key for key, one in stretch.targets.items() if (one.pool or "default") in pools]
    # the minutes that pages are made of, and the ten before each; of those concerned all of it
    end = pl.col("end")
    near = pl.any_horizontal(
        (end > pl.lit(first - TEN_MINUTES, TIME)) & (end <= pl.lit(last, TIME))
        for first, last in _runs(ends)
    )
    span = ends[0] - TEN_MINUTES, ends[-1]
    of_pools = days.store.past(*span, keys, days.stored_columns).filter(near)
    concerned = {key for t in happened for key in t.concerned} | {
        TargetKey(t.incident.target["instance"], t.incident.target["engine"])
        for t in happened
        if t.incident.target.get("instance")
    }
    stored = days.store.past(*span, concerned).filter(near)
    minutes = of_pools.filter(pl.col("seconds") == MINUTE).drop("seconds")
    reference = days.reference(stretch.targets)
    rows = minute_evidence(minutes, stretch.targets, plan, reference)
    beside = [name for name in minutes.columns if name not in rows.columns]
    rows = rows.hstack(minutes.select(beside)).filter(pl.col("end").is_in(ends))

    def windows(_: Evaluation, wanted: pl.DataFrame) -> pl.DataFrame:
        """In order of the windows, each the ten minutes of a target."""
        each = wanted.select(*KEY, window_start="start", window_end="end").unique()
        inside = stored.join(each, on=KEY).filter(
            pl.col("end") > pl.col("window_start"), pl.col("end") <= pl.col("window_end")
        )
        inside = inside.sort(*KEY, "window_end", "end").drop("window_start")
        found = window_evidence(inside, stretch.targets, plan, reference).drop("minutes")
        ordered = wanted.select(*KEY, "end")
        return ordered.join(found, on=[*KEY, "end"], how="left", maintain_order="left").select(
            found.columns
        )

    state = State(targets=stretch.targets, incidents=before)
    verdicts = pl.DataFrame(
        [rows.select(rule.verdict.alias(rule.id)).to_series() for rule in plan.enabled]
    )
    signals = no_signals(plan.frames(state.targets))
    evaluation = Evaluation(
        state,
        replace(plan, simulations=0),
        signals,
        stretch.first,
        stretch.last,
        rows,
        verdicts,
        PastMinutes(store=days.store),
        windows=windows,
    )
    transitions, open_after, _ = with_pages(evaluation, happened, after)
    return transitions, open_after


def _runs(ends: Sequence[datetime]) -> list[tuple[datetime, datetime]]:
    """First and last of minutes that are near each other."""
    runs = [(ends[0], ends[0])]
    for end in ends[1:]:
        first, last = runs[-1]
        if end - last <= TEN_MINUTES:
            runs[-1] = (first, end)
        else:
            runs.append((end, end))
    return runs


def advised_then(pages: Iterable[PastPage], incidents: Iterable[Incident]) -> list[PastPage]:
    """Pages with the advice that the service gave on its own of the same rule and time."""
    given: dict[tuple[str, str], list[Incident]] = {}
    for one in incidents:
        if one.page is not None and one.firing_at is not None:
            given.setdefault((one.rule, PastPage.of(one).where), []).append(one)
    advised = []
    for page in pages:
        near = [
            (abs(one.firing_at - page.fired_at), one)
            for one in given.get((page.rule, page.where), ())
            if one.firing_at is not None
        ]
        apart, stored = min(near, key=lambda pair: pair[0], default=(None, None))
        if stored is not None and apart is not None and apart <= _NEAR and stored.page is not None:
            advice, knob = _advice_of(stored.page)
            page = replace(page, advice=advice, knob=knob)
        advised.append(page)
    return advised


@dataclass(frozen=True, slots=True)
class PastPage:
    """One incident that would have been sent, from its first page to its end."""

    id: str  # of the incident, as the live service would have called it
    rule: str  # rule id
    alert: str  # alert name
    severity: Severity
    target: Mapping[str, str]  # labels of the target group: instance and engine, or the pool
    started_at: datetime  # when the condition became true
    fired_at: datetime
    resolved_at: datetime | None = None  # None = it fires still at the end of the history
    closed: str | None = None  # why it ended although its condition was not false, else None
    leaf: str | None = None  # where its diagnosis ended, None without one
    advice: str | None = None  # what to do, as of its last answer; None = the page says nothing
    knob: str | None = None  # the setting that the advice changes
    headline: str = ""  # line 1 of its first page
    targets: tuple[str, ...] = ()  # of a page about several targets: the first of them

    @classmethod
    def of(cls, incident: Incident) -> PastPage:
        """A page without what it says."""
        return cls(
            id=incident.id,
            rule=incident.rule,
            alert=incident.alert,
            severity=incident.severity,
            target=dict(incident.target),
            started_at=incident.started_at,
            fired_at=incident.firing_at or incident.started_at,
            resolved_at=incident.resolved_at,
        )

    @property
    def incident(self) -> Incident:
        """Its incident while it fires."""
        return Incident(
            id=self.id,
            key=self.id,
            rule=self.rule,
            alert=self.alert,
            severity=self.severity,
            target=self.target,
            state="firing",
            started_at=self.started_at,
            last_true_at=self.fired_at,
            firing_at=self.fired_at,
        )

    @property
    def is_of_pool(self) -> bool:
        """It is about servers of a pool together."""
        return not self.target.get("instance")

    @property
    def where(self) -> str:
        """The server, or the pool."""
        if instance := self.target.get("instance"):
            return TargetKey(instance, self.target.get("engine", "0")).text
        return self.target.get("pool", "")


def past_pages(transitions: Iterable[Transition]) -> list[PastPage]:
    """What fired, in order; each with its end and its last advice."""
    pages: dict[str, PastPage] = {}
    for transition in transitions:
        incident, page = transition.incident, transition.incident.page
        if transition.event == "firing":
            pages[incident.id] = _fired(incident, page)
        elif incident.id not in pages:
            continue
        elif transition.event == "resolved":
            pages[incident.id] = replace(
                pages[incident.id], resolved_at=transition.at, closed=transition.reason
            )
        elif page is not None:
            advice, knob = _advice_of(page)
            pages[incident.id] = replace(pages[incident.id], advice=advice, knob=knob)
    return list(pages.values())


def _fired(incident: Incident, page: Mapping[str, Any] | None) -> PastPage:
    advice, knob = (None, None) if page is None else _advice_of(page)
    document = page or {}
    return replace(
        PastPage.of(incident),
        leaf=(document.get("diagnosis") or {}).get("leaf"),
        advice=advice,
        knob=knob,
        headline=document.get("summary", "").partition(". No advice:")[0],
        targets=tuple((document.get("concerned") or {}).get("first", ())),
    )


def _advice_of(page: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """What a page says to do, and the setting that it changes."""
    recommendation = page.get("recommendation") or {}
    if recommendation.get("action") == "insufficient":
        return None, None
    texts: Sequence[str] = imperatives(page)
    knob = recommendation.get("knob") if recommendation.get("action") == "change" else None
    return (texts[0] if texts else None), knob
