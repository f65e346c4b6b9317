"""The settings of receivers: each kind is a part, and a field of ReceiverSettings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from driftwatch.model import Severity
from driftwatch.settings.sources import BasicAuth
from driftwatch.settings.values import (
    Count,
    File,
    Labels,
    Name,
    SecretUrl,
    Url,
    WithSecrets,
    base_url,
    one_of,
)
from driftwatch.yaml_models import Duration, Part

_NO_ALERTS = frozenset(("verified", "report"))

# form of receiver (its kind; of a Slack app with that) → events that it ignores; other forms take
# every event
_IGNORED: Mapping[str, frozenset[str]] = {
    # a trigger after the resolve would open a new alert
    "pagerduty": _NO_ALERTS,
    # Alertmanager repeats by itself
    "alertmanager": _NO_ALERTS | {"repeat"},
}

# forms that know an alert by its labels alone: a resolve ends whatever has them by then
BY_LABELS = frozenset(("alertmanager",))

# kinds that wake people: by default they take no ticket
PAGES_ONLY = frozenset(("pagerduty",))


def takes(form: str, event: str, number: int = 0) -> bool:
    """Whether receivers of a form take a message; ``number``: above 0, of a firing page: a repeat.

    What a receiver does not take is neither planned nor sent.
    """
    name = "repeat" if event == "firing" and number else event
    return name not in _IGNORED.get(form, frozenset())


# Alertmanager resolves an alert that nobody posts again within so many intervals
INTERVALS_OF_AN_ALERT = 4


class AlertmanagerReceiver(WithSecrets):
    """An Alertmanager, or all of a cluster."""

    urls: tuple[Annotated[Url, base_url("/api/v2/alerts", "/api/v2")], ...] = Field(
        min_length=1, description="base URL of each Alertmanager of the cluster"
    )
    interval: Annotated[Duration, Field(ge=5, le=3600)] = Field(
        60.0,
        description="how often firing alerts are posted again; 4 intervals without end an alert",
    )
    labels: Labels = Field(default_factory=dict, description="labels that every alert gets")
    tenant: str | None = Field(
        None, pattern=r"^[!-~]{1,150}$", description="header X-Scope-OrgID, of Mimir"
    )
    bearer_token_file: File | None = Field(None, description="file that holds a bearer token")
    basic_auth: BasicAuth | None = Field(None, description="user and password")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "bearer_token_file", "basic_auth", required=False)
        return self


class AppriseReceiver(WithSecrets):
    """One of the services that Apprise knows (Teams, Telegram, ntfy, ...): best effort."""

    address_file: File = Field(description="file that holds Apprise's URL of it")


_PORTS = {"starttls": 587, "tls": 465, "none": 25}


def _address(text: str) -> str:
    """One plain address; a line end in it would become a header of its own."""
    local, at, domain = text.rpartition("@")
    plain = text.isascii() and text.isprintable() and not any(c in ' <>()[],;:\\"' for c in text)
    if not (at and local and domain and plain) or "@" in local or len(text) > 254:
        raise ValueError("an address is wanted here, such as oncall@example.org")
    return text


Address = Annotated[str, AfterValidator(_address)]
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:\[\]-]+$", max_length=253)]


class EmailReceiver(WithSecrets):
    """Mail through a relay (SMTP)."""

    host: Host = Field(description="name or address of the relay")
    port: Count | None = Field(
        None, le=65535, description="default 587 (starttls), 465 (tls), 25 (none)"
    )
    tls: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="starttls, tls from the first byte, or none"
    )
    sender: Address = Field(alias="from", description="the address that mail comes from")
    to: tuple[Address, ...] = Field(
        min_length=1, max_length=50, description="addresses that get the mail"
    )
    user: str | None = Field(None, min_length=1, max_length=254, description="user of the relay")
    password_file: File | None = Field(None, description="file that holds the password")

    @model_validator(mode="after")
    def _check(self) -> Self:
        has_password = self.password_file is not None
        if has_password != (self.user is not None):
            raise ValueError("give user and password_file together, or neither")
        if has_password and self.tls == "none":
            raise ValueError("a password needs tls: starttls or tls")
        return self

    @property
    def relay_port(self) -> int:
        """The port, given or usual."""
        return self.port or _PORTS[self.tls]


class PagerdutyReceiver(WithSecrets):
    """A PagerDuty service, through the Events API v2."""

    routing_key_file: File = Field(description="file that holds the integration key")
    url: Url = Field(
        "https://events.pagerduty.com",
        description="base URL; of an account in the EU https://events.eu.pagerduty.com",
    )

    @property
    def base_url(self) -> str:
        """Where events are posted, without the path."""
        return self.url.rstrip("/")


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
        one_of(self, "webhook_url_file", "bot_token_file")
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


class StdoutReceiver(Part):
    """Pages as JSON lines on standard output."""


class WebhookReceiver(WithSecrets):
    """A server that takes pages as JSON."""

    url: SecretUrl | None = Field(None, description="where pages are posted; may hold a token")
    url_file: File | None = Field(None, description="file that holds the URL")
    secret_file: File | None = Field(None, description="file with the key of the HMAC signature")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "url", "url_file")
        return self


# a kind is a field of ReceiverSettings, a module here, and one in driftwatch/receivers
KINDS = ("slack", "pagerduty", "alertmanager", "email", "apprise", "webhook", "stdout")


class ReceiverSettings(Part):
    """Who gets pages, and of which severities."""

    name: Name = Field(description="name that rules and commands use")
    slack: SlackReceiver | None = Field(None, description="a Slack incoming webhook, or an app")
    pagerduty: PagerdutyReceiver | None = Field(None, description="a PagerDuty service")
    alertmanager: AlertmanagerReceiver | None = Field(None, description="an Alertmanager cluster")
    email: EmailReceiver | None = Field(None, description="mail through a relay")
    apprise: AppriseReceiver | None = Field(None, description="a service that Apprise knows")
    webhook: WebhookReceiver | None = Field(None, description="a generic webhook")
    stdout: StdoutReceiver | None = Field(None, description="standard output: {}")
    severities: tuple[Severity, ...] = Field(
        ("page", "ticket"), min_length=1, description="severities it takes"
    )

    @model_validator(mode="before")
    @classmethod
    def _severities_of_kind(cls, raw: object) -> object:
        if isinstance(raw, Mapping) and "severities" not in raw and PAGES_ONLY & raw.keys():
            return {**raw, "severities": ("page",)}
        return raw

    @field_validator("stdout", mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        return {} if value is None else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, *KINDS)
        return self

    @property
    def kind(self) -> str:
        """Which one of :data:`KINDS` it is."""
        return next(name for name in KINDS if getattr(self, name) is not None)

    @property
    def form(self) -> str:
        """Its kind; of an app with that."""
        return "slack, app" if self.slack is not None and self.slack.is_app else self.kind
