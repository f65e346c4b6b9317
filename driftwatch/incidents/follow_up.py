"""What receivers get of an incident after its page: the page once more, with what is new. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from driftwatch.incidents.incident import Incident
from driftwatch.incidents.planner import MessageAbout
from driftwatch.model import Advice
from driftwatch.notify.advice import replicas_besides, setting_change
from driftwatch.notify.headline import ADVICE_NOW, rendered
from driftwatch.notify.page import Page

NO_LIMIT = "none"  # of the column binding_limit


def what_changed(before: Advice | None, now: Advice | None) -> str | None:
    """What another answer changes, in words; None = nothing.

    >>> why = Reason("no_knob_helps", "every limit has room")
    >>> none = Advice("none", why, instead=("add 2 replicas: all in target",))
    >>> what_changed(None, none)
    'advice now: add 2 replicas, before none yet'
    """
    if is_no_answer(now) or says_less(before, now):
        return None
    one, other = _advice(before), _advice(now)
    if one == other:
        return None
    other += "" if now is None else replicas_besides(now)
    return f"{ADVICE_NOW}{other}, before {one}{_reason(before, now)}"


def is_other_cause(now: str, told: str) -> bool:
    """Whether the leaf or the full limit is another; an unknown limit is none."""
    (leaf, _, limit), (leaf_told, _, limit_told) = now.partition(" "), told.partition(" ")
    # a limit that fills again is no news: the update "is no longer full" said what still misses
    is_known = limit != "" and limit_told not in ("", NO_LIMIT)
    return leaf != leaf_told or (limit != limit_told and is_known)


def cause_changed(told: str, now: str, page: Page | None) -> str:
    """``max_num_batched_tokens is no longer full; 12 % of requests still miss TTFT 1 s``."""
    limit, limit_now = told.partition(" ")[2], now.partition(" ")[2]
    problem = "" if page is None else page.phrases.problem[0]
    if limit not in ("", NO_LIMIT) and limit_now == NO_LIMIT:
        still = problem.replace("requests miss", "requests still miss")
        return f"{_limit_words(limit)} is no longer full; {still}"
    if limit_now not in ("", NO_LIMIT, limit):
        return f"{_limit_words(limit_now)} is full now"
    cause = "" if page is None else page.phrases.cause
    return f"cause now: {cause}" if cause else "the cause has changed"


def _limit_words(limit: str) -> str:
    return "the KV cache" if limit == "kv_cache" else limit


def _reason(before: Advice | None, now: Advice | None) -> str:
    """Why a change has another value than the one before."""
    if before is None or now is None or not (before.moves and now.moves):
        return ""
    why = (now.value_reason or "").partition("; ")[0]
    if why.startswith("with "):
        return f": {why}"
    (one, *_), (other, *_) = before.moves, now.moves
    if one.knob != other.knob or one.to_value == other.to_value:
        return ""
    return ": less is enough" if other.to_value < one.to_value else ": more is needed"


def is_no_answer(advice: Advice | None) -> bool:
    """Whether there is no answer: neither advice, nor the finding that nothing helps."""
    return advice is None or advice.action == "insufficient"


def no_advice(advice: Advice | None) -> str:
    """``no advice: 9 of 10 minutes under load``."""
    return "no advice" if advice is None else f"no advice: {advice.why}"


def says_less(before: Advice | None, now: Advice | None) -> bool:
    """Whether an answer says less than the one before: none after "no knob helps", the same
    without a simulation, or that fewer replicas would do.
    """
    if before is None or now is None or now.action == "insufficient":
        return before is not None and before.action == "none"
    if before.replicas is not None and now.replicas is not None and not now.moves:
        return now.replicas <= before.replicas
    is_alike = now.action == before.action and now.action in ("none", "change")
    return is_alike and before.basis == "simulation" != now.basis


def _advice(advice: Advice | None) -> str:
    """An answer in a few words."""
    if advice is None or advice.action == "insufficient":
        return "none yet"
    if advice.action == "change":
        return f"set {setting_change(advice).replace(' (inferred)', '')}"  # line 1 is cut at it
    if advice.action == "no_action":
        return "nothing to do"
    if advice.instead:
        return advice.instead[0].split(":")[0]
    text = advice.reason.text
    return f"{text[:1].lower()}{text[1:]}" if advice.basis is None else "no setting helps"


def follow_up(
    page: Page,
    event: Literal["updated", "verified"],
    at: datetime,
    changed: str | None = None,
) -> Page:
    """What receivers are sent: the page with what is new, ``advice`` or ``verification``.

    ``changed``: of ``updated``, what is otherwise than on the page before, in words.
    """
    times = page.times.model_copy(update={"evaluated_at": at})
    update = {"event": event, "times": times, "changed": changed}
    return rendered(page.model_copy(update=update))


def sent_page(incident: Incident, about: MessageAbout) -> Page | None:
    """What receivers are sent: the incident's page, with who acknowledged it and what changed.

    A page that goes out for the first time is as it was made.
    """
    if (page := incident.page) is None:
        return None
    is_again = about.changed is not None or (about.event == "firing" and about.number > 0)
    if incident.acknowledgement is None and not is_again:
        return page
    update: dict[str, Any] = {"acknowledgement": incident.acknowledgement}
    if is_again:
        times = page.times.model_copy(update={"evaluated_at": about.at})
        update |= {"event": about.event, "times": times, "changed": about.changed}
        update["repeat"] = about.number if about.changed is None else 0
    return rendered(page.model_copy(update=update))
