"""Receivers as the service plans and sends for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.incidents.routing import Subscription
from driftwatch.model import Severity
from driftwatch.receivers.registry import build_senders
from driftwatch.receivers.sender import Sender
from driftwatch.settings import Settings
from driftwatch.settings.receivers.slack import SlackReceiver
from driftwatch.settings.receivers.taken_events import takes


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver as the planner sees it."""

    name: str
    severities: tuple[Severity, ...]
    sender: Sender
    # how often an Alertmanager, which forgets it, is posted what fires; None: it is posted once
    repost_seconds: float | None = None
    form: str = "stdout"  # its kind, and which of its forms
    slack: SlackReceiver | None = None  # of Slack: its buttons

    @property
    def subscription(self) -> Subscription:
        """What it takes."""
        return Subscription(self.name, self.severities)


def subscriptions_of(settings: Settings) -> list[Subscription]:
    """What the receivers of a configuration take; no secret is read."""
    return [Subscription(r.name, r.severities) for r in settings.receivers]


def receivers_of(settings: Settings) -> list[Receiver]:
    """The receivers of a configuration, in its order.

    Raises ConfigError: secrets that cannot be read, all of them.
    """
    senders = build_senders(settings.receivers)
    return [
        Receiver(
            one.name,
            one.severities,
            senders[one.name],
            repost_seconds=None if one.alertmanager is None else one.alertmanager.interval,
            form=one.form,
            slack=one.slack,
        )
        for one in settings.receivers
    ]


def without_ignored(
    planned: Iterable[PlannedDelivery], receivers: Iterable[Receiver]
) -> list[PlannedDelivery]:
    """What is planned, without what its receiver would ignore: the outbox holds what is sent."""
    forms = {one.name: one.form for one in receivers}
    return [
        one for one in planned if takes(forms.get(one.receiver, "stdout"), one.event, one.number)
    ]
