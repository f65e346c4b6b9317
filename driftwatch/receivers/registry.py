"""The receivers of a configuration, and the page of ``driftwatch doctor --send-test``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module

from driftwatch.errors import ConfigError, Problem
from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.incidents.planner import Subscription
from driftwatch.model import Severity
from driftwatch.notify.headline import rendered
from driftwatch.notify.page import Page, Phrases, Servers, Times
from driftwatch.numbers import clean, cut, utc_text
from driftwatch.receivers.sender import Sender
from driftwatch.receivers.stdout import StdoutSender
from driftwatch.settings import ReceiverSettings, Settings
from driftwatch.settings.receivers import SlackReceiver, takes

_NAME_LIMIT = 40


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


def build_senders(receivers: Iterable[ReceiverSettings]) -> dict[str, Sender]:
    """One sender a receiver, by name, in the order of the configuration.

    Raises ConfigError: secrets that cannot be read, all of them.
    """
    senders: dict[str, Sender] = {}
    problems: list[Problem] = []
    for one in receivers:
        if one.stdout is not None:
            senders[one.name] = StdoutSender(one.name, json=True)
            continue
        # the module that is named as its kind; an import takes long, so only what is used
        module = import_module(f"driftwatch.receivers.{one.kind}")
        made = getattr(module, f"{one.kind.capitalize()}Sender")(one.name, getattr(one, one.kind))
        try:
            made.check()
        except ConfigError as error:
            problems += error.problems
        senders[one.name] = made
    if problems:
        raise ConfigError(tuple(problems))
    return senders


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


def subscriptions_of(settings: Settings) -> list[Subscription]:
    """What the receivers of a configuration take; no secret is read."""
    return [Subscription(r.name, r.severities) for r in settings.receivers]


def without_ignored(
    planned: Iterable[PlannedDelivery], receivers: Iterable[Receiver]
) -> list[PlannedDelivery]:
    """What is planned, without what its receiver would ignore: the outbox holds what is sent."""
    forms = {one.name: one.form for one in receivers}
    return [
        one for one in planned if takes(forms.get(one.receiver, "stdout"), one.event, one.number)
    ]


def sample_pages(receiver: str, at: datetime) -> tuple[Page, Page]:
    """The page of a test, with ``test`` true, and its resolve.

    The id holds the time, so that no two are one delivery.
    """
    name = cut(clean(receiver), _NAME_LIMIT)
    page = Page(
        event="firing",
        test=True,
        incident=f"test-{utc_text(at)}",
        key='Test{instance="driftwatch"}',
        rule="Test",
        alert="Test",
        severity="notice",
        labels={"instance": "driftwatch"},
        servers=Servers(concerned=1, of=1, first=("driftwatch",)),
        times=Times(started_at=at, firing_at=at, evaluated_at=at, measured_at=at),
        phrases=Phrases(problem=(f"a test page for {name}; nothing is wrong, do nothing",)),
    )
    over = {
        "event": "resolved",
        "times": page.times.model_copy(update={"resolved_at": at}),
        "phrases": Phrases(problem=(f"the test page for {name} is resolved",)),
    }
    return rendered(page), rendered(page.model_copy(update=over))
