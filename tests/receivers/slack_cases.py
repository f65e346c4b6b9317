"""A Slack workspace and senders into it, for tests of the Slack app."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fakes.slack_workspace import BOT_TOKEN, SlackWorkspace
from page_cases import AT

from driftwatch.incidents.delivery import MessageEvent
from driftwatch.notify.page import Acknowledgement, Page
from driftwatch.receivers.http import Limits
from driftwatch.receivers.sender import Message
from driftwatch.receivers.slack import LIMITS, SlackApi, SlackAppSender

CHANNEL, ELSEWHERE = "C0000ONCALL", "C0000OTHER"
ANA, BEN, EVE = "U0000ANA", "U0000BEN", "U0000EVE"


def workspace() -> SlackWorkspace:
    return SlackWorkspace({CHANNEL: (ANA, BEN), ELSEWHERE: (ANA,)}, {ANA: "Ana", BEN: "Ben"})


def sender(
    slack: SlackWorkspace,
    *,
    clicks: bool = True,
    token: str = BOT_TOKEN,
    limits: Limits = LIMITS,
    name: str = "oncall",
) -> SlackAppSender:
    return SlackAppSender(SlackApi(name, token, slack.api_url, limits), CHANNEL, clicks)


def told(
    page: Page,
    conversation: Mapping[str, str] | None = None,
    *,
    event: MessageEvent | None = None,
    number: int = 0,
) -> Message:
    """A message about the page's incident."""
    event = event or page.event
    page = page.model_copy(update={"event": event})
    return Message("incident", page.incident, event, number, page, conversation)


def acknowledged(page: Page, by: str = "Ana", comment: str = "") -> Page:
    """The page with who took it."""
    at = replace_minutes(5)
    one = Acknowledgement(by=by, at=at, comment=comment)
    return page.model_copy(update={"acknowledgement": one})


def replace_minutes(minutes: int) -> datetime:
    """A time so many minutes after the page."""
    return AT.replace(minute=AT.minute - 56 + minutes, hour=3)
