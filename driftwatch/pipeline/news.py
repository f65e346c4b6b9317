"""What is new about an incident since its last message, and with what it ended. Pure."""

from __future__ import annotations

import math
from datetime import datetime

import polars as pl

from driftwatch.diagnose.not_a_knob import no_knob_because
from driftwatch.incidents.follow_up import is_no_answer, no_advice, says_less, what_changed
from driftwatch.incidents.incident import Incident, Told
from driftwatch.model import Finding
from driftwatch.notify.page import Page
from driftwatch.numbers import clean, is_as_before, knob, times

# An advice is computed anew where a mean length or the rate moved so far since its window: in
# steady traffic the ten-minute means of a server move less in 99 % of windows (decision 98).
_MOVED = math.log(1.15)
_WORSE = 0.25  # of all requests: three updates at most from a tenth to all
_GIVEN_UP = "given_up_10m_low_ratio"
_LOAD = ("prompt_tokens_mean", "generation_tokens_mean", "requests_per_second")


def told_of(incident: Incident, finding: Finding, at: datetime) -> Told:
    """What a message with this finding would say."""
    leaf = "" if finding.diagnosis is None else finding.diagnosis.leaf
    # beside an engine that is slow a full limit is no cause, and no message names it
    is_engine = no_knob_because(finding.evidence, leaf) is not None
    cause = f"{leaf} {'' if is_engine else finding.evidence.get('limit_full') or ''}"
    return Told(
        at=at,
        servers=len(incident.concerned),
        cause=cause,
        last_cause=cause,
        load=load_of(finding),
        missed_ratio=_missed_ratio(finding),
        given_up_ratio=finding.evidence.get(_GIVEN_UP),
    )


def load_of(finding: Finding) -> dict[str, float]:
    """The known mean lengths and rate of requests, by evidence column."""
    return {name: value for name in _LOAD if (value := finding.evidence.get(name))}


def rests_on_another_load(page: Page, told: Told, finding: Finding) -> bool:
    """Whether the load moved away from that of a simulated answer; not after a change was made."""
    advice = page.advice
    if advice is None or advice.basis != "simulation" or page.verification is not None:
        return False
    grew = {
        n: math.log(now / told.load[n]) for n, now in load_of(finding).items() if n in told.load
    }
    # fewer finished requests and shorter answers may be those of clients that gave up
    return max(grew.values(), default=0.0) >= _MOVED or grew.get(_LOAD[0], 0.0) <= -_MOVED


def _missed_ratio(finding: Finding) -> float | None:
    met = (finding.evidence.get(f"{name}_in_target_10m_ratio") for name in ("ttft", "tpot"))
    known = [float(one) for one in met if one is not None]
    return 1.0 - min(known) if known else None


def is_worse(told: Told, finding: Finding) -> bool:
    """Whether a quarter of all requests more miss a target, or are given up, than the last message
    said.
    """
    lost, before = finding.evidence.get(_GIVEN_UP), told.given_up_ratio
    grew = 0.0 if lost is None or before is None else lost - before
    return max(_grew(told, finding), grew) >= _WORSE


def is_better(told: Told, finding: Finding) -> bool:
    """Whether a quarter of all requests fewer miss a target than the last message said."""
    return _grew(told, finding) <= -_WORSE


def _grew(told: Told, finding: Finding) -> float:
    """The share of requests that miss a target, less that of the last message; 0 = unknown."""
    now, before = _missed_ratio(finding), told.missed_ratio
    return 0.0 if now is None or before is None else now - before


def news_of(old: Page, answer: Finding, told: Told) -> str | None:
    """What to send after another answer: empty = the same advice; None = keep the one before."""
    advice = answer.advice
    if is_final(answer) and (words := what_changed(old.advice, advice)) is not None:
        return words
    was_promised = old.asked_again_at is not None
    if old.advice is not None and old.advice.action == "change" and is_no_answer(advice):
        # twice there was none for the load of now, and the forecast was made for another
        is_other = was_promised and rests_on_another_load(old, told, answer)
        return f"advice withdrawn: {no_advice(advice)}" if is_other else None
    if not is_final(answer):
        return None
    if was_promised and is_no_answer(old.advice):
        return no_advice(advice)
    return None if says_less(old.advice, advice) or is_no_answer(advice) else ""


def is_final(answer: Finding) -> bool:
    """Whether to send an answer: "no knob helps" of a drift's first minutes may still change."""
    stays = answer.advice is not None and answer.advice.action not in ("insufficient", "none")
    return stays or not answer.asked_again


# cause of a diagnosis → what moved, and its ratio to the baseline
_MOVES = {
    "prompts": ("prompts", "prompt_tokens_mean_ratio"),
    "generations": ("generations", "generation_tokens_mean_ratio"),
    "demand": ("requests", "requests_per_second_ratio"),
}
_CLOCK_DOWN = 0.9  # of the baseline's SM clock, as in the tree


def ended_because(page: Page | None, here: pl.DataFrame) -> str:
    """``generations are back near the baseline's; max_num_seqs is still 48, so it can come back``;
    empty where neither is known.

    ``here``: the rows of the incident's servers when it ended.
    """
    first = None if page is None else page.as_first.diagnosis
    if page is None or first is None or page.severity == "notice":
        return ""
    parts = list[str]()
    what, column = _MOVES.get(first.cause or "", ("", ""))
    if what and (now := _mean(here, column)) is not None:
        is_back = is_as_before(now)
        parts.append(f"{what} are {'back near' if is_back else times(now)} the baseline's")
    clock, ratio = _mean(here, "gpu_sm_clock_hertz"), _mean(here, "gpu_sm_clock_ratio")
    if first.leaf == "gpu_throttled" and clock is not None and ratio is not None:
        where = "back at" if ratio > _CLOCK_DOWN else "still"
        held = clean(page.value("gpu_clock_event_reasons") or "")
        why = f"held down by {held} before" if held else "why it fell is unknown"
        parts.append(f"the SM clock is {where} {clock / 1e6:,.0f} MHz; {why}, so it can fall again")
    for move in () if page.advice is None else page.advice.moves:
        values = set(here[move.knob].drop_nulls()) if move.knob in here.columns else set()
        running = _mean(here, "running_requests") if move.knob == "max_num_seqs" else None
        if move.from_value is not None and running is not None and running > move.from_value + 0.5:
            parts.append(f"{running:.0f} requests run: max_num_seqs is not {knob(move.from_value)}")
        elif move.from_value is not None and values == {move.from_value}:
            parts.append(f"{move.knob} is still {knob(move.from_value)}, so it can come back")
        elif values == {move.to_value}:
            parts.append(f"{move.knob} is {knob(move.to_value)} now")
    return "; ".join(parts)


def _mean(rows: pl.DataFrame, column: str) -> float | None:
    known = rows[column].drop_nulls() if column in rows.columns else pl.Series()
    return float(known.mean()) if len(known) else None  # type: ignore[arg-type]
