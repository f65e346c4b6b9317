"""Slack: pages through an incoming webhook, or through an app (:mod:`.slack_app`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from driftwatch.errors import DeliveryError
from driftwatch.receivers.http import Limits, post
from driftwatch.receivers.sender import Message, Sender
from driftwatch.receivers.slack_api import HEADERS, SlackApi
from driftwatch.receivers.slack_app import SlackAppSender
from driftwatch.receivers.slack_blocks import blocks, report_blocks
from driftwatch.settings.receivers.slack import SlackReceiver

_LIMITS = Limits(whole=True)


@dataclass(frozen=True, slots=True)
class SlackSender:
    """Posts to an incoming webhook."""

    name: str  # receiver name, the only thing of it that errors print
    url: str = field(repr=False)  # the webhook's URL, a secret
    limits: Limits = _LIMITS
    allow_link_local: bool = False  # permit link-local and metadata addresses

    def send(self, message: Message) -> None:
        """Post the page, or a weekly report, once; retries are the outbox's business.

        Raises DeliveryError: Slack did not take it.
        """
        draw = blocks if message.kind == "incident" else report_blocks
        body = orjson.dumps(draw(message.payload))
        answer = post(self.name, self.url, body, HEADERS, self.limits, self.allow_link_local)
        if answer.text.strip() != "ok":
            # a login page or a wrong address answers 200 too
            text = f"{self.name} answered 200, but not as Slack does"
            raise DeliveryError(text, permanent=True)


def sender_of(name: str, settings: SlackReceiver) -> Sender:
    """The sender of a receiver: a webhook, or an app.

    Raises ConfigError: a secret cannot be read.
    """
    if not settings.is_app:
        return SlackSender(name, settings.read_url("webhook_url"))
    clicks = settings.read("app_token") is not None
    return SlackAppSender(app_of(name, settings), settings.channel or "", clicks)


def app_of(name: str, settings: SlackReceiver) -> SlackApi:
    """The Web API with the app's bot token.

    Raises ConfigError: the token cannot be read.
    """
    return SlackApi(name, settings.read("bot_token") or "", settings.api_url.rstrip("/") + "/")
