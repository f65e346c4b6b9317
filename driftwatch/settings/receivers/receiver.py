"""Who gets pages, and of which severities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import Field, field_validator, model_validator

from driftwatch.model import Severity
from driftwatch.settings.receivers.alertmanager import AlertmanagerReceiver
from driftwatch.settings.receivers.apprise import AppriseReceiver
from driftwatch.settings.receivers.email import EmailReceiver
from driftwatch.settings.receivers.pagerduty import PagerdutyReceiver
from driftwatch.settings.receivers.slack import SlackReceiver
from driftwatch.settings.receivers.stdout import StdoutReceiver
from driftwatch.settings.receivers.taken_events import PAGES_ONLY
from driftwatch.settings.receivers.webhook import WebhookReceiver
from driftwatch.settings.values import Name, one_of
from driftwatch.yaml_models import Part

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
        """Its kind; of an app or a webhook in another format with that."""
        is_other = self.webhook is not None and self.webhook.format == "alertmanager"
        if self.slack is not None and self.slack.is_app:
            return "slack, app"
        return "webhook, format alertmanager" if is_other else self.kind
