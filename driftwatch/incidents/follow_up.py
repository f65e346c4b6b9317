"""What is told of an incident after its page, once each: advice that came later, and a verdict.

Pure. A follow-up is the page once more, with what is new in it; the incident itself keeps the page
of its state, with the same news.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

from driftwatch.incidents.delivery import Acknowledgement
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.planner import MessageAbout
from driftwatch.incidents.silence import Silence
from driftwatch.model import Finding, Recommendation
from driftwatch.notify.advice import setting_change
from driftwatch.notify.headline import headline, target_name
from driftwatch.notify.page import next_time, recommendation_json
from driftwatch.numbers import utc_text

AGAIN = "asked_again_at"


def with_answer(
    page: Mapping[str, Any], finding: Finding, incident: Incident, at: datetime
) -> dict[str, Any]:
    """The page of an incident with what the simulation says now.

    What fired and where the diagnosis ended stay; the recommendation is that of ``at``.
    """
    advised = finding.recommendation
    new = {
        **page,
        "recommendation": None if advised is None else recommendation_json(advised),
    }
    before = (page.get("recommendation") or {}).get("action")
    new.pop("answered_by", None)
    if finding.answered_by is not None:
        new["answered_by"] = dict(zip(("incident", "alert"), finding.answered_by, strict=True))
    if before == "none" and advised is not None and advised.action != "none":
        new["withdrawn"] = {"action": before, "at": page["times"]["evaluated_at"]}
    return later(new, next_time(at) if finding.asked_again else None)


def later(page: Mapping[str, Any], at: datetime | None) -> dict[str, Any]:
    """The page, with when its question is asked again; None = it is not."""
    new = {name: value for name, value in page.items() if name != AGAIN}
    if at is not None:
        new[AGAIN] = utc_text(at)
    new["summary"] = headline(new)
    return new


def what_changed(before: Mapping[str, Any] | None, now: Recommendation | None) -> str:
    """What the answer of a second try changes, or that it changes nothing.

    >>> why = Reason("no_knob_helps", "every limit has room")
    >>> none = Recommendation("none", why, instead=("add 2 replicas: all in target",))
    >>> what_changed(None, none)
    'the advice: none yet → add 2 replicas'
    """
    if now is None or now.action == "insufficient":
        why = "" if now is None else f": {now.why}"
        if before is None or before["action"] == "insufficient":
            return f"nothing: a second try gives no advice{why}"
        return f"nothing: the advice stands; a second try gives none{why}"
    one, other = _advice(before), _advice(recommendation_json(now))
    if says_less(before, now):
        return f"nothing: the advice stands, {one}; a second try gives none"
    if one == other:
        return "nothing: a second try gives the same advice"
    return f"the advice: {one} → {other}"


def who_changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Whom a page is about now, and whom the page before was about.

    >>> one = {"target": {"instance": "s0:8000"}}
    >>> who_changed(one, {"target": {}, "concerned": {"targets": 4, "of_targets": 8}})
    '4 of 8 servers, before: s0:8000'
    """
    return f"{_who(now)}, before: {_who(before, with_noun=not before.get('concerned'))}"


def _who(page: Mapping[str, Any], *, with_noun: bool = True) -> str:
    if (concerned := page.get("concerned")) is None:
        return target_name(page)
    noun = " servers" if with_noun else ""
    return f"{concerned['targets']} of {concerned['of_targets']}{noun}"


def says_less(before: Mapping[str, Any] | None, now: Recommendation | None) -> bool:
    """No verdict, or an answer without a replay, where people have "no knob helps" of one."""
    if before is None or before["action"] != "none":
        return False
    if now is None or now.action == "insufficient":
        return True
    return now.action == "none" and before.get("basis") == "simulation" != now.basis


def _advice(recommendation: Mapping[str, Any] | None) -> str:
    """An answer in a few words."""
    if recommendation is None or recommendation["action"] == "insufficient":
        return "none yet"
    if recommendation["action"] == "change":
        return f"set {setting_change(recommendation)}"
    if recommendation["action"] == "no_action":
        return "nothing to do"
    instead = recommendation.get("instead")
    return str(instead[0]).split(":")[0] if instead else "no setting helps"


def follow_up(
    page: Mapping[str, Any],
    event: Literal["updated", "verified"],
    at: datetime,
    changed: str | None = None,
) -> dict[str, Any]:
    """What receivers are sent: the page with what is new, ``recommendation`` or ``verification``.

    ``changed``: of ``updated``, what is otherwise than on the page before, in words.
    """
    new = {**page, "event": event, "times": {**page["times"], "evaluated_at": utc_text(at)}}
    if changed is not None:
        then = datetime.fromisoformat(page["times"]["evaluated_at"])
        # only the advice was asked again: how bad it is was measured when the page was made
        old = f"; how bad it is (line 1): as of {then:%H:%M} UTC" if then < at else ""
        new["changed"] = changed + old
    new["summary"] = headline(new)
    return new


def rendered(incident: Incident, about: MessageAbout) -> Mapping[str, Any]:
    """What receivers are sent: the incident's page, with who acknowledged it and what changed.

    A page that goes out for the first time is as it was made.
    """
    page: Mapping[str, Any] = incident.page or {}
    is_again = about.changed is not None or (about.event == "firing" and about.number > 0)
    if about.acknowledgement is None and not is_again:
        return page
    new = dict(page)
    if about.acknowledgement is not None:
        new["acknowledgement"] = acknowledgement_json(about.acknowledgement)
    if is_again:
        times = page["times"]
        measured_at = times.get("measured_at", times["evaluated_at"])
        again = {"evaluated_at": utc_text(about.at), "measured_at": measured_at}
        new |= {"event": about.event, "times": {**times, **again}}
    if about.changed is not None:
        new["changed"] = about.changed
    elif is_again:
        new["repeat"] = about.number
    new["summary"] = headline(new)
    return new


def acknowledgement_json(one: Acknowledgement) -> dict[str, Any]:
    """Who acknowledged it."""
    return {"by": one.by, "at": utc_text(one.at), "comment": one.comment, "via": one.via}


def silence_json(silence: Silence) -> dict[str, Any]:
    """A silence as it is stored, its matchers as people write them."""
    return {**asdict(silence), "matchers": [matcher.text for matcher in silence.matchers]}
