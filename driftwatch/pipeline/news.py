"""What changed on an incident since its last message, and why it ended. Pure.

An update is sent when clearly more requests suffer, or when the cause or the advice changed.
pages.py counts the servers.
"""

from __future__ import annotations

import math
from datetime import datetime

import polars as pl

from driftwatch.diagnose.not_a_knob import SPEED_LEAVES, no_knob_because
from driftwatch.diagnose.states import CLOCK_DOWN_RATIO, NO_LIMIT
from driftwatch.diagnose.tree import UNDETERMINED
from driftwatch.incidents.incident import Incident, LastMessage
from driftwatch.model import Advice, Finding
from driftwatch.notify.advice import change_texts
from driftwatch.notify.headline import ADVICE_NOW
from driftwatch.notify.page import REFRESH_EVERY, Page
from driftwatch.notify.phrases.limits import MANY_GAVE_UP, missed
from driftwatch.numbers import clean, is_as_before, knob, times

# Compute advice again when a mean length or the rate moved this far from its window. In steady
# traffic a server's ten-minute means move less in 99 % of windows (decision 98).
_LOAD_MOVED = math.log(1.15)
# Of all requests: a share over ten minutes varies by a few points.
_CLEARLY_MORE = 0.1
_MANY_MISS = (0.5, 0.9)
_GIVEN_UP = "given_up_10m_low_ratio"
_THROTTLED = "gpu_throttled"  # the leaf
_LOAD = ("prompt_tokens_mean", "generation_tokens_mean", "requests_per_second")


def message_facts(incident: Incident, finding: Finding, at: datetime) -> LastMessage:
    """The facts of a message with this finding; shares are the worst of all messages so far."""
    leaf = "" if finding.diagnosis is None else finding.diagnosis.leaf
    last, now = incident.told, finding.evidence
    limit = now.get("limit_full") or ""
    if limit == NO_LIMIT and last is not None and now.get("binding_limit") == _parts(last.cause)[1]:
        limit = now["binding_limit"]  # less often full, it still holds requests back
    # a slow engine fills its batch, so messages name no full limit beside it
    is_engine = no_knob_because(now, leaf) is not None
    cause = f"{leaf} {'' if is_engine else limit}"
    causes = () if last is None else last.causes
    missed, gave_up = _missed_ratio(finding), now.get(_GIVEN_UP)
    return LastMessage(
        at=at,
        servers=len(incident.concerned),
        cause=cause,
        causes=causes if cause in causes else (*causes, cause),
        last_cause=cause,
        load=load_of(finding),
        replicas=None if finding.advice is None else finding.advice.replicas,
        missed_ratio=missed if last is None else _most(missed, last.missed_ratio),
        given_up_ratio=gave_up if last is None else _most(gave_up, last.given_up_ratio),
    )


def _most(*shares: float | None) -> float | None:
    return max((one for one in shares if one is not None), default=None)


def load_of(finding: Finding) -> dict[str, float]:
    """The known mean lengths and rate of requests, by evidence column."""
    return {name: value for name in _LOAD if (value := finding.evidence.get(name))}


def rests_on_another_load(page: Page, told: LastMessage, finding: Finding) -> bool:
    """Whether the load left that of the simulated advice; False once the advice was followed."""
    advice = page.advice
    if advice is None or advice.basis != "simulation" or page.verification is not None:
        return False
    grew = {
        n: math.log(now / told.load[n]) for n, now in load_of(finding).items() if n in told.load
    }
    # fewer finished requests and shorter generations may come from clients that gave up
    return max(grew.values(), default=0.0) >= _LOAD_MOVED or grew.get(_LOAD[0], 0.0) <= -_LOAD_MOVED


def _missed_ratio(finding: Finding) -> float | None:
    """The lower bound of the share of requests that missed a target."""
    met = []
    for name in ("ttft", "tpot"):
        least, most = (
            finding.evidence.get(f"{name}_in_target_10m_{end}") for end in ("ratio", "upper_ratio")
        )
        met += [] if least is None else [least if most is None else most]
    return 1.0 - min(met) if met else None


def is_worse(told: LastMessage, finding: Finding) -> bool:
    """Whether users suffer clearly more than any message said: clients begin to give up, or twice
    as many requests miss a target, or half of them, or nine in ten. Unknown shares do not count.
    """
    gave_up, before = finding.evidence.get(_GIVEN_UP), told.given_up_ratio
    if gave_up is not None and before is not None and before < MANY_GAVE_UP <= gave_up:
        return True
    missed, before = _missed_ratio(finding), told.missed_ratio
    if missed is None or before is None or missed - before < _CLEARLY_MORE:
        return False
    return missed >= 2 * before or any(before < level <= missed for level in _MANY_MISS)


def worse_news(incident: Incident, finding: Finding, at: datetime, *, has_news: bool) -> str | None:
    """``worse: 95 % of requests miss TTFT 1.5 s``; None where it is not, and in the first ten
    minutes of a page without other news: there the share rises by itself.
    """
    page, told = incident.page, incident.told
    is_new = at - (incident.firing_at or at) < REFRESH_EVERY and not has_news
    if page is None or told is None or is_new or not is_worse(told, finding):
        return None
    return f"worse: {missed(page) or page.phrases.problem[0]}"


def reported_missed(told: LastMessage | None, finding: Finding) -> bool:
    """Whether a message reported a missed latency target."""
    before, share = None if told is None else told.missed_ratio, finding.evidence.get("slo_share")
    return before is not None and share is not None and before > 1 - share


def advice_news(old: Page, answer: Finding, told: LastMessage) -> str | None:
    """The text to send for a new answer: "" = the same advice; None = keep the earlier advice."""
    advice = answer.advice
    if is_final(answer) and _asks_no_more(old.advice, advice, told.replicas):
        return ""
    if is_final(answer) and (words := what_changed(old.advice, advice)) is not None:
        return words
    was_promised = old.asked_again_at is not None
    if old.advice is not None and old.advice.action == "change" and is_no_answer(advice):
        # two answers in a row had no advice, and the old forecast is for another load
        is_other = was_promised and rests_on_another_load(old, told, answer)
        return f"advice withdrawn: {no_advice(advice)}" if is_other else None
    if not is_final(answer):
        return None
    if was_promised and is_no_answer(old.advice):
        return no_advice(advice)
    return None if is_weaker(old.advice, advice) or is_no_answer(advice) else ""


def _asks_no_more(before: Advice | None, now: Advice | None, told: int | None) -> bool:
    """Whether both are replicas alone, and the last message (``told``) had as many: no news, but
    the next message has the number of now.
    """
    one, other = (None if a is None or a.moves else a.replicas for a in (before, now))
    return one is not None and other is not None and told is not None and other <= told


def is_final(answer: Finding) -> bool:
    """Whether to send an answer: in a drift's first minutes "no knob helps" may still change."""
    stays = answer.advice is not None and answer.advice.action not in ("insufficient", "none")
    return stays or not answer.asked_again


def what_changed(before: Advice | None, now: Advice | None) -> str | None:
    """How the advice changed: ``advice now: add 2 replicas, before none yet``; None = not."""
    if is_no_answer(now) or is_weaker(before, now):
        return None
    one, other = _short_text(before), _short_text(now)
    if one == other:
        return None
    return f"{ADVICE_NOW}{other}, before {one}"


def is_undetermined(finding: Finding, old: Page) -> bool:
    """Whether the cause is unknown now: the walk has no end, or a slow engine is not judged."""
    not_judged = finding.evidence.get("slower") is None and old.leaf in SPEED_LEAVES
    return not_judged or (finding.diagnosis is not None and finding.diagnosis.leaf == UNDETERMINED)


def is_other_cause(now: str, told: str) -> bool:
    """Whether the leaf or the full limit changed; an unknown limit does not count."""
    (leaf, limit), (leaf_told, limit_told) = _parts(now), _parts(told)
    # a limit that fills again needs no update: "is no longer full" named what is still missed
    is_known = limit != "" and limit_told not in ("", NO_LIMIT)
    return leaf != leaf_told or (limit != limit_told and is_known)


def cause_changed(told: str, now: str, page: Page | None) -> str:
    """``max_num_batched_tokens is no longer full; 12 % of requests still miss TTFT 1 s``, ``the
    clock is back; max_num_seqs is full now``.
    """
    (leaf, limit), (leaf_now, limit_now) = _parts(told), _parts(now)
    problem = "" if page is None else page.phrases.problem[0]
    if limit not in ("", NO_LIMIT) and limit_now == NO_LIMIT:
        still = problem.replace("requests miss", "requests still miss")
        return f"{_limit_words(limit)} is no longer full; {still}"
    if limit_now not in ("", NO_LIMIT, limit):
        clock = None if page is None else page.value("gpu_sm_clock_ratio")
        is_back = leaf == _THROTTLED != leaf_now and clock is not None and clock > CLOCK_DOWN_RATIO
        back = "the clock is back; " if is_back else ""
        return f"{back}{_limit_words(limit_now)} is full now"
    cause = "" if page is None else page.phrases.cause
    return f"cause now: {cause}" if cause else "the cause has changed"


def _parts(cause: str) -> tuple[str, str]:
    leaf, _, limit = cause.partition(" ")
    return leaf, limit


def _limit_words(limit: str) -> str:
    return "the KV cache" if limit == "kv_cache" else limit


def is_no_answer(advice: Advice | None) -> bool:
    """Whether the simulation gave neither advice nor the result that nothing helps."""
    return advice is None or advice.action == "insufficient"


def no_advice(advice: Advice | None) -> str:
    """``no advice: 9 of 10 minutes under load``."""
    return "no advice" if advice is None else f"no advice: {advice.why}"


def is_weaker(before: Advice | None, now: Advice | None) -> bool:
    """Whether the new answer is weaker: none after "no knob helps", the same without a simulation,
    or fewer replicas.
    """
    if before is None or now is None or now.action == "insufficient":
        return before is not None and before.action == "none"
    if before.replicas is not None and now.replicas is not None and not now.moves:
        return now.replicas <= before.replicas
    if before.replicas is not None and before.moves and before.settings == now.settings:
        return (now.replicas or 0) < before.replicas
    if (before.reason.code, now.reason.code) == ("leaf", "engine"):
        return True  # what to do about a slow engine is more than what not to do
    is_alike = now.action == before.action and now.action in ("none", "change")
    return is_alike and before.basis == "simulation" != now.basis


def _short_text(advice: Advice | None) -> str:
    if advice is None or advice.action == "insufficient":
        return "none yet"
    if advice.action == "change":
        text = change_texts(advice)[min(1, len(advice.instead))].replace(" (inferred)", "")
        return f"{text[:1].lower()}{text[1:]}"
    if advice.action == "no_action":
        return "nothing to do"
    if advice.instead:
        return advice.instead[0].split(":")[0]
    text = advice.reason.text
    return f"{text[:1].lower()}{text[1:]}" if advice.basis is None else "no setting helps"


# cause of a diagnosis → what moved, and the column of its ratio to the baseline
_MOVED_BY_CAUSE = {
    "prompts": ("prompts", "prompt_tokens_mean_ratio"),
    "generations": ("generations", "generation_tokens_mean_ratio"),
    "demand": ("requests", "requests_per_second_ratio"),
}


def ended_because(page: Page | None, here: pl.DataFrame, change: str = "") -> str:
    """``generations are back near the baseline's; max_num_seqs is still 48, so it can come back``;
    empty where neither is known.

    ``here``: the rows of its servers at its end; ``change``: what changed on them while it lasted.
    """
    first = None if page is None else page.as_first.diagnosis
    if page is None or page.severity == "notice":
        return ""
    parts = [change] if change else []
    if first is None:
        return change
    what, column = _MOVED_BY_CAUSE.get(first.cause or "", ("", ""))
    if what and (now := _mean(here, column)) is not None:
        is_back = is_as_before(now)
        parts.append(
            f"{what} are {'back near' if is_back else f'still {times(now)}'} the baseline's"
        )
    clock, ratio = _mean(here, "gpu_sm_clock_hertz"), _mean(here, "gpu_sm_clock_ratio")
    if first.leaf == _THROTTLED and clock is not None and ratio is not None:
        where = "back at" if ratio > CLOCK_DOWN_RATIO else "still"
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
