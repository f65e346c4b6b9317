"""Messages of every kind, and what a sender raises: shared by the tests of receivers."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from page_cases import AT, CAP

from driftwatch.errors import DeliveryError
from driftwatch.notify.headline import rendered
from driftwatch.notify.page import Acknowledgement, Page
from driftwatch.receivers.sender import Conversation, Message, Sender, message_of
from driftwatch.report.make import report_of
from driftwatch.report.material import Material
from driftwatch.report.week import week_named

ANA = Acknowledgement(by="ana", at=AT, comment="restarting <b>it</b>", via="command line")


def message(page: Page | Mapping[str, Any], conversation: Conversation | None = None) -> Message:
    """The first message of a page."""
    return replace(message_of(page), conversation=conversation)


def changed(page: Page | None = None, **update: Any) -> Page:
    """A page with other fields, and the texts that belong to them."""
    return rendered((CAP.page() if page is None else page).model_copy(update=update))


def acknowledged(by: Acknowledgement | None = ANA, page: Page | None = None) -> Message:
    """Somebody acknowledged the incident, or took that back."""
    what = "acknowledged, by ana" if by is not None else "no longer acknowledged, by ana"
    return message(changed(page, event="updated", changed=what, acknowledgement=by))


def repeat(page: Page | None = None) -> Message:
    return replace(message(changed(page, repeat=1)), number=1)


def refused(sender: Sender, what: Message | None = None) -> DeliveryError:
    """The error of a message that was not taken; no secret is in it."""
    with pytest.raises(DeliveryError) as caught:
        sender.send(message(CAP.page()) if what is None else what)
    error = caught.value
    text = "".join(traceback.format_exception(error)) + repr(error) + repr(sender)
    assert "canary" not in text
    assert error.__context__ is None
    return error


def report() -> Message:
    """The report of a week without a minute of data."""
    week = week_named("2026-W47")
    return message_of(report_of(Material(week, week.end)).document())
