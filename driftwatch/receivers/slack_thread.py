"""An incident's message as it stands, and what its thread says of a change. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from driftwatch.notify.headline import headline, marked
from driftwatch.notify.numbers import clean, cut, duration, moment
from driftwatch.notify.page_values import Page, evaluated, instant
from driftwatch.notify.verification_line import outcome_line
from driftwatch.receivers.sender import Conversation, Message
from driftwatch.receivers.slack_blocks import (
    Button,
    body_parts,
    button_parts,
    command_parts,
    harmless,
    message_of_line,
    slack_time,
)

ACKNOWLEDGE, SILENCE = "acknowledge", "silence_2h"
USEFUL, NOT_USEFUL = "useful", "not_useful"
_FIRING: tuple[Button, ...] = ((ACKNOWLEDGE, "Acknowledge"), (SILENCE, "Silence 2 h"))
_WHILE_TAKEN: tuple[Button, ...] = ((SILENCE, "Silence 2 h"),)
_OVER: tuple[Button, ...] = ((USEFUL, "Useful"), (NOT_USEFUL, "Not useful"))
# what a page has when it is sent again
_OF_ONE_MESSAGE = ("acknowledgement", "reason", "repeat")
_LINE_LIMIT, _NAME_LIMIT = 120, 40


@dataclass(frozen=True, slots=True)
class Taker:
    """Who has the incident."""

    by: str
    at: datetime

    @staticmethod
    def of(conversation: Conversation | None) -> Taker | None:
        """As the last message left it."""
        stored = conversation or {}
        if not stored.get("taken_by") or not stored.get("taken_at"):
            return None
        return Taker(stored["taken_by"], datetime.fromisoformat(stored["taken_at"]))

    def stored(self) -> dict[str, str]:
        """For the conversation."""
        return {"taken_by": self.by, "taken_at": self.at.isoformat()}


def taker_after(about: Message) -> Taker | None:
    """Who has it once this message is told."""
    page = about.payload
    if about.event == "acknowledged":
        by = (page.get("acknowledgement") or {}).get("by") or "somebody"
        at = (page.get("acknowledgement") or {}).get("at")
        return Taker(str(by), evaluated(page) if at is None else datetime.fromisoformat(at))
    return None if about.event == "unacknowledged" else Taker.of(about.conversation)


def standing(
    page: Page, taker: Taker | None, *, clicks: bool, value: str, is_first: bool = False
) -> dict[str, Any]:
    """The one message of an incident as it stands: FIRING, TAKEN, RESOLVED or CLOSED.

    ``taker``: who has it; ``clicks``: buttons act (else commands to copy); ``value``: what a click
    brings back; ``is_first``: it says why it comes.
    """
    if page["event"] == "resolved":
        over = _OVER if clicks else ()
        line = marked(page, page["summary"])
        return message_of_line(line, [*body_parts(page), *button_parts(page, over, value)])
    now = page if is_first and page["event"] == "firing" else firing_page(page)
    acts = (_FIRING if taker is None else _WHILE_TAKEN) if clicks and not page["test"] else ()
    line = marked(now, now["summary"]) if taker is None else taken_line(now, taker)
    parts = [*body_parts(now), *([] if clicks else command_parts(now))]
    return message_of_line(line, [*parts, *button_parts(now, acts, value)])


def firing_page(page: Page) -> Page:
    """The page as of an incident that fires, whatever news it brought."""
    if page["event"] == "firing" and "reason" not in page:
        return page
    now = {name: page[name] for name in page if name not in _OF_ONE_MESSAGE} | {"event": "firing"}
    return {**now, "summary": headline(now)}


def taken_line(page: Page, taker: Taker) -> str:
    """``🟠 TAKEN by Ana 03:01 UTC · rag-8b, 8 of 8: 99 % of requests miss …``."""
    at = moment(taker.at.astimezone(UTC), evaluated(page).date())
    rest = page["summary"].partition(" ")[2]
    return cut(f"🟠 TAKEN by {cut(clean(taker.by), _NAME_LIMIT)} {at} · {rest}", _LINE_LIMIT)


@dataclass(frozen=True, slots=True)
class Note:
    """A line of a thread."""

    text: str  # Slack's mrkdwn
    broadcast: bool = False  # the channel sees it too: somebody has to act


def note_of(about: Message) -> Note | None:
    """What the thread says of a message that is not the first: what changes a decision."""
    page = about.payload
    today = evaluated(page)
    at = slack_time(today, today)
    if about.event == "acknowledged":
        return Note(f"*Taken* {_person(page)}")
    if about.event == "unacknowledged":
        return Note(f"*Given back* {_person(page)}", broadcast=True)
    if about.event == "verified":
        return Note(harmless(outcome_line(page["verification"], today.date())))
    if about.event == "advised":
        changed = f": {harmless(clean(page['changed']))}" if page.get("changed") else ""
        return Note(f"*Changed* {at}{changed}\n{harmless(page['summary'])}")
    if about.event == "firing":
        began = instant(page, "started_at") or today
        lasted = duration(max(0.0, (today - began).total_seconds()))
        return Note(f"*Still firing* {at}: for {lasted}, and nobody has taken it", broadcast=True)
    return None


def _person(page: Page) -> str:
    """``by Ana 03:01: restarting``."""
    acknowledgement: Mapping[str, Any] = page.get("acknowledgement") or {}
    today = evaluated(page)
    text = f"by {harmless(cut(clean(str(acknowledgement.get('by') or 'somebody')), _NAME_LIMIT))}"
    if acknowledgement.get("at"):
        text += f" {slack_time(datetime.fromisoformat(acknowledgement['at']), today)}"
    comment = acknowledgement.get("comment")
    return f"{text}: {harmless(cut(clean(str(comment)), 300))}" if comment else text
