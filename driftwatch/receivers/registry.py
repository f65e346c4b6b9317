"""The receivers of a configuration, and the page of ``driftwatch doctor --send-test``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib import import_module

from driftwatch.errors import ConfigError, DeliveryError, Problem
from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.planner import Subscription
from driftwatch.model import Severity
from driftwatch.notify.headline import rendered
from driftwatch.notify.page import Links, Page, Phrases
from driftwatch.numbers import clean, cut, utc_text
from driftwatch.pipeline.build_page import build_page
from driftwatch.receivers.alertmanager import AlertmanagerSender
from driftwatch.receivers.sender import Conversation, Message, Sender
from driftwatch.settings import ReceiverSettings, Settings
from driftwatch.settings.receivers import SlackReceiver, takes


@dataclass(frozen=True, slots=True)
class FreshSender:
    """Makes its sender anew for each page, so that a changed secret file counts at once."""

    name: str  # receiver name
    make: Callable[[], Sender] = field(repr=False)  # reads the secrets and makes the sender
    form: str  # its kind, and which of its forms

    def send(self, message: Message) -> Conversation | None:
        """Deliver the message, unless a receiver of its form ignores it.

        Raises DeliveryError: it was not taken, or a secret cannot be read just now.
        """
        if not takes(self.form, message.event, message.number):
            return None
        return self._sender().send(message)

    def keep(
        self, pages: Iterable[Page], *, over: bool = False
    ) -> Mapping[str, DeliveryError | None]:
        """Post again what fires, of a receiver that forgets it; of another nothing happens.

        Raises DeliveryError: a secret cannot be read just now.
        """
        sender = self._sender()
        return sender.keep(pages, over=over) if isinstance(sender, AlertmanagerSender) else {}

    def _sender(self) -> Sender:
        try:
            return self.make()
        except ConfigError as error:
            text = f"{self.name}: {error.problems[0].message}"
            raise DeliveryError(text, permanent=False) from None


def build_senders(receivers: Iterable[ReceiverSettings]) -> dict[str, FreshSender]:
    """One sender a receiver, by name, in the order of the configuration.

    Every secret is read once, so that a missing file is an error at the start.

    Raises ConfigError: secrets that cannot be read, all of them.
    """
    senders: dict[str, FreshSender] = {}
    problems: list[Problem] = []
    for receiver in receivers:
        fresh = FreshSender(receiver.name, _maker(receiver), receiver.form)
        try:
            fresh.make()
        except ConfigError as error:
            problems += error.problems
        senders[receiver.name] = fresh
    if problems:
        raise ConfigError(tuple(problems))
    return senders


def _maker(receiver: ReceiverSettings) -> Callable[[], Sender]:
    """What makes its sender: ``sender_of`` of the module that is named as its kind."""
    module = import_module(f"driftwatch.receivers.{receiver.kind}")
    settings = getattr(receiver, receiver.kind)
    return lambda: module.sender_of(receiver.name, settings)


_NAME_LIMIT = 40


def sample_pages(receiver: str, at: datetime) -> tuple[Page, Page]:
    """The page of a test, with ``test`` true, and its resolve.

    The id holds the time, so that no two are one delivery.
    """
    firing = Incident(
        id=f"test-{utc_text(at)}",
        key='Test{instance="driftwatch"}',
        rule="Test",
        alert="Test",
        severity="notice",
        target={"instance": "driftwatch"},
        state="firing",
        started_at=at,
        firing_at=at,
        last_true_at=at,
    )
    name = cut(clean(receiver), _NAME_LIMIT)
    page = build_page(None, firing, "firing", at)
    ended = build_page(None, replace(firing, state="resolved", resolved_at=at), "resolved", at)
    return (
        _as_test(page, f"a test page for {name}; nothing is wrong, do nothing"),
        _as_test(ended, f"the test page for {name} is resolved"),
    )


def _as_test(page: Page, text: str) -> Page:
    phrases = Phrases(problem=(text,))
    update = {"test": True, "links": Links(), "phrases": phrases}
    return rendered(page.model_copy(update=update))


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
