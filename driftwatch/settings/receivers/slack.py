"""Slack: an incoming webhook, or an app with a bot token."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from driftwatch.settings.values import File, SecretUrl, Url, WithSecrets, one_of


def _id(first: str, what: str) -> AfterValidator:
    """An ID of Slack's: names change, and its API takes them no more."""

    def check(text: str) -> str:
        if re.fullmatch(f"[{first}][A-Z0-9]{{2,20}}", text) is None:
            raise ValueError(f"not the ID of {what}")
        return text

    return AfterValidator(check)


_CHANNEL = "a channel, such as C024BE91L: Slack shows it at the end of its details"
Channel = Annotated[str, _id("CGD", _CHANNEL)]
User = Annotated[str, _id("UW", "a person, such as U024BE7LH: profile, Copy member ID")]

_OF_AN_APP = ("app_token_file", "channel", "users")


class SlackReceiver(WithSecrets):
    """A Slack incoming webhook, or an app that posts with a bot token."""

    webhook_url: SecretUrl | None = Field(None, description="the URL; better in a file")
    webhook_url_file: File | None = Field(None, description="file that holds the URL")
    bot_token_file: File | None = Field(None, description="file with the app's bot token, xoxb-")
    app_token_file: File | None = Field(
        None, description="file with the app's app-level token, xapp-: the buttons work"
    )
    channel: Channel | None = Field(None, description="ID of the channel the app posts to")
    users: tuple[User, ...] = Field(
        (), description="IDs of who may use the buttons; without it whoever sees the message"
    )
    api_url: Url = Field(
        "https://slack.com/api/", description="the Web API, another one for GovSlack"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "webhook_url", "webhook_url_file", "bot_token_file")
        if self.bot_token_file is None:
            for name in _OF_AN_APP:
                if getattr(self, name):
                    raise ValueError(f"{name} belongs to an app: give bot_token_file too")
        elif self.channel is None:
            raise ValueError("bot_token_file needs channel, the ID of the channel to post to")
        if self.users and self.app_token_file is None:
            raise ValueError("users says who may click: give app_token_file too")
        return self

    @property
    def is_app(self) -> bool:
        """Whether an app posts, and no webhook."""
        return self.bot_token_file is not None
