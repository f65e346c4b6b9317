"""Messages of every kind, and what a sender raises: shared by the tests of receivers."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import Any

import pytest
from page_cases import AT, CAP

from driftwatch.errors import DeliveryError
from driftwatch.incidents.follow_up import sent_page
from driftwatch.incidents.incident import Event
from driftwatch.incidents.planner import MessageAbout
from driftwatch.notify.page import Acknowledgement, Page
from driftwatch.receivers.sender import Conversation, Message, Sender, message_of
from driftwatch.report.make import report_of
from driftwatch.report.material import Material
from driftwatch.report.week import week_named

INCIDENT = "3f9c1a7be204"


def message(page: Page, conversation: Conversation | None = None) -> Message:
    """The first message of a page."""
    return replace(message_of(page), conversation=conversation)


def sent(
    event: Event,
    page: Page,
    number: int = 0,
    taken: Acknowledgement | None = None,
    changed: str | None = None,
) -> Message:
    """A message as the planner and the texts after it make it."""
    incident = replace(CAP.incident, page=page)
    payload = sent_page(incident, MessageAbout(event, AT, number, taken, changed))
    return Message("incident", INCIDENT, event, number, payload)


def repeat(page: Page, number: int = 1) -> Message:
    return sent("firing", page, number)


TAKEN = Acknowledgement(by="ana", at=AT, comment="restarting <b>it</b>", via="command line")


def updated(page: Page) -> Message:
    return sent("updated", page.model_copy(update={"event": "updated"}))


def acknowledged(page: Page | None = None) -> Message:
    page = CAP.page() if page is None else page
    return sent("updated", page, 0, TAKEN, "acknowledged, by ana: restarting <b>it</b>")


def unacknowledged(page: Page | None = None) -> Message:
    page = CAP.page() if page is None else page
    return sent("updated", page, 1, None, "not acknowledged any more, by ana")


def refused(sender: Sender, what: Message | None = None) -> DeliveryError:
    """The error of a message that was not taken; no secret is in it."""
    with pytest.raises(DeliveryError) as caught:
        sender.send(message(CAP.page()) if what is None else what)
    error = caught.value
    text = "".join(traceback.format_exception(error)) + repr(error) + repr(sender)
    assert "canary" not in text
    assert error.__context__ is None
    return error


def report() -> dict[str, Any]:
    """The report of a week without a minute of data."""
    week = week_named("2026-W47")
    return report_of(Material(week, week.end)).document()
