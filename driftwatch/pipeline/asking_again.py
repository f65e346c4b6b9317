"""Pages that had to go out without an answer are asked about again while they fire. Pure.

What time may cure is asked again on minutes of the grid (:data:`driftwatch.notify.page.EVERY`, on
the clock): too few busy minutes or requests, pages of one minute that were too many, a replay that
failed, "no knob helps" by the first minutes of a drift. The minutes alone decide, so that it does
not matter how they are split over ticks. The page says when the replay is asked again, so its
receivers are sent the answer that stays, whatever it is, with what changed; nobody asks after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from driftwatch.model import Finding, Incident, Transition
from driftwatch.notify.follow_up import (
    AGAIN,
    follow_up,
    later,
    says_less,
    what_changed,
    with_answer,
)
from driftwatch.notify.page import EVERY, next_time
from driftwatch.pipeline.replaying import Replayed

# incidents of one minute, to be asked about → what was found of them, and what was replayed
Answers = Callable[[Sequence[Transition]], tuple[Mapping[str, Finding], Sequence[Replayed]]]


@dataclass(frozen=True, slots=True)
class Later:
    """What came of asking again.

    Attributes:
        told: follow-ups, in order of time.
        pages: incident id → its page as it is now.
        answers: what was replayed.
    """

    told: tuple[Transition, ...] = ()
    pages: Mapping[str, Mapping[str, object]] | None = None
    answers: tuple[Replayed, ...] = ()


@dataclass(slots=True)
class _Waiting:
    incident: Incident  # with its page
    since: datetime
    until: datetime | None  # resolved then


def asked_again(
    before: Mapping[str, Incident],
    told: Sequence[Transition],
    answers: Sequence[Replayed],
    span: tuple[datetime, datetime],
    replays: int,
    ask: Answers,
) -> Later:
    """Ask for the answers that pages wait for, minute of the grid by minute.

    Args:
        before: open incidents before these minutes, with their pages.
        told: what fired in them, with its page, and what ended.
        answers: what was replayed for the pages of these minutes.
        span: start of the first minute, end of the last one.
        replays: of one minute, its pages and those that are asked about again together.
        ask: finds out.
    """
    waiting = {one.incident.id: one for one in _waiting(before, told, span[0])}
    if not waiting or not replays:
        return Later()
    used = Counter(answer.at for answer in answers)
    follow_ups: list[Transition] = []
    pages: dict[str, Mapping[str, object]] = {}
    more: list[Replayed] = []
    at = next_time(span[0])
    while at <= span[1] and waiting:
        here = sorted((one for one in waiting.values() if _asks(one, at)), key=_turn)
        here = here[: max(0, replays - used[at])]
        if here:
            found, replayed = ask([Transition(one.incident, "advised", at) for one in here])
            more += replayed
            for one in here:
                incident, page = one.incident, one.incident.page or {}
                finding = found.get(incident.id)
                answered = any(answer.incident_id == incident.id for answer in replayed)
                changed = None
                # not the replay's question just now, or an answer that more minutes may change
                open_still = finding is None or (finding.asked_again and not _is_answer(finding))
                if finding is None or open_still or not answered:
                    page = later(page, next_time(at))
                else:
                    changed = what_changed(page.get("recommendation"), finding.recommendation)
                    if says_less(page.get("recommendation"), finding.recommendation):
                        page = later(page, None)
                    else:
                        page = with_answer(page, finding, incident, at)
                one.incident = replace(incident, page=page)
                pages[incident.id] = page
                if AGAIN not in page:
                    del waiting[incident.id]
                if changed is not None:
                    sent = replace(incident, page=follow_up(page, "advised", at, changed))
                    follow_ups.append(Transition(sent, "advised", at))
        at += EVERY
    return Later(tuple(follow_ups), pages, tuple(more))


def _waiting(
    before: Mapping[str, Incident], told: Sequence[Transition], first: datetime
) -> Iterator[_Waiting]:
    ended = {t.incident.id: t.at for t in told if t.event == "resolved"}
    fired = [(t.incident, t.at) for t in told if t.event == "firing"]
    for incident, since in [*((one, first) for one in before.values()), *fired]:
        if incident.page is not None and incident.page.get(AGAIN) is not None:
            yield _Waiting(incident, since, ended.get(incident.id))


def _asks(one: _Waiting, at: datetime) -> bool:
    return one.since < at and (one.until is None or at < one.until)


def _turn(one: _Waiting) -> tuple[bool, str, str]:
    """Pages first; then who was to be asked before the others."""
    incident = one.incident
    return incident.severity != "page", str((incident.page or {})[AGAIN]), incident.key


def _is_answer(finding: Finding) -> bool:
    """Whether it is the answer that stays: receivers are sent one other only.

    "No knob helps" by the first minutes of a drift would use that up.
    """
    advised = finding.recommendation
    return advised is not None and advised.action not in ("insufficient", "none")
