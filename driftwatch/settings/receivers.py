"""Who gets pages and the weekly report, and what a GPU costs."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from driftwatch.model import Severity
from driftwatch.settings.values import (
    File,
    Name,
    Number,
    Secret,
    SecretUrl,
    one_of,
    read_of,
    read_url_of,
)
from driftwatch.yaml_models import Part

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
Currency = Annotated[str, Field(pattern=r"^[^\s\d<>&\"']{1,8}$")]


class SlackReceiver(Part):
    """A Slack incoming webhook."""

    webhook_url: SecretUrl | None = Field(None, description="the URL; better in a file")
    webhook_url_file: File | None = Field(None, description="file that holds the URL")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "webhook_url", "webhook_url_file")
        return self

    def read_url(self) -> str:
        """The URL, from its file where it lies in one.

        Raises ConfigError: the file cannot be read, or holds no http(s) URL.
        """
        return read_url_of(self.webhook_url, self.webhook_url_file)


class WebhookReceiver(Part):
    """Any server that takes the page as JSON."""

    url: SecretUrl | None = Field(None, description="where pages are posted; may hold a token")
    url_file: File | None = Field(None, description="file that holds the URL")
    secret: Secret | None = Field(None, description="key of the HMAC signature; better in a file")
    secret_file: File | None = Field(None, description="file that holds the key")
    allow_link_local: bool = Field(False, description="permit link-local and metadata addresses")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "url", "url_file")
        one_of(self, "secret", "secret_file", required=False)
        return self

    def read_url(self) -> str:
        """The URL, from its file where it lies in one.

        Raises ConfigError: the file cannot be read, or holds no http(s) URL.
        """
        return read_url_of(self.url, self.url_file)

    def read_secret(self) -> str | None:
        """The signing key, None = unsigned.

        Raises ConfigError: the file cannot be read.
        """
        return read_of(self.secret, self.secret_file)


class StdoutReceiver(Part):
    """Pages as JSON lines on standard output."""


class ReceiverSettings(Part):
    """Who gets pages, and of which severities."""

    name: Name = Field(description="name that rules and commands use")
    slack: SlackReceiver | None = Field(None, description="a Slack incoming webhook")
    webhook: WebhookReceiver | None = Field(None, description="a generic webhook")
    stdout: StdoutReceiver | None = Field(None, description="standard output: {}")
    severities: tuple[Severity, ...] = Field(
        ("page", "ticket", "notice"), min_length=1, description="severities it takes"
    )

    @field_validator("stdout", mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        return {} if value is None else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "slack", "webhook", "stdout")
        return self


class GpuHourPrice(Part):
    """What an hour of one GPU costs."""

    amount: Number = Field(description="price of one GPU for one hour")
    currency: Currency = Field(description="its currency, as it is printed: EUR, $")


class ReportSettings(Part):
    """When the weekly report is made, and who gets it."""

    weekday: Weekday = Field("monday", description="the day on which it is made")
    hour: int = Field(7, ge=0, le=23, strict=True, description="the hour, UTC")
    receivers: tuple[Name, ...] = Field(
        (), description="names of the receivers that get it; without any all of them"
    )
    directory: File | None = Field(None, description="folder that the HTML file is written into")

    @field_validator("receivers")
    @classmethod
    def _check_receivers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"named twice: {', '.join(twice)}")
        return names
