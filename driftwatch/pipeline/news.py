"""What is new about an open incident since its last message. Pure."""

from __future__ import annotations

import math
from datetime import datetime

from driftwatch.diagnose.not_a_knob import no_knob_because
from driftwatch.incidents.follow_up import is_no_answer, no_advice, says_less, what_changed
from driftwatch.incidents.incident import Incident, Told
from driftwatch.model import Finding
from driftwatch.notify.page import Page

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
