"""Receiver name → sender, from the configuration; the page of `driftwatch notify test`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from driftwatch.errors import ConfigError, DeliveryError, Problem
from driftwatch.model import Incident
from driftwatch.notify.delivery import Sender
from driftwatch.notify.numbers import clean, cut, utc_text
from driftwatch.notify.page import build_page
from driftwatch.notify.slack import SlackSender
from driftwatch.notify.stdout import StdoutSender
from driftwatch.notify.webhook import WebhookSender
from driftwatch.settings import ReceiverSettings, WebhookReceiver


@dataclass(frozen=True, slots=True)
class FreshSender:
    """Makes its sender anew for each page, so that a changed secret file counts at once."""

    name: str  # receiver name
    make: Callable[[], Sender] = field(repr=False)  # reads the secrets and makes the sender

    def send(self, page: Mapping[str, Any]) -> None:
        """Deliver the page.

        Raises DeliveryError: it was not taken, or a secret cannot be read just now.
        """
        try:
            sender = self.make()
        except ConfigError as error:
            text = f"{self.name}: {error.problems[0].message}"
            raise DeliveryError(text, permanent=False) from None
        sender.send(page)


def build_senders(receivers: Iterable[ReceiverSettings]) -> dict[str, Sender]:
    """One sender a receiver, by name, in the order of the configuration.

    Every secret is read once, so that a missing file is an error at the start.

    Raises ConfigError: secrets that cannot be read, all of them.
    """
    senders: dict[str, Sender] = {}
    problems: list[Problem] = []
    for receiver in receivers:
        fresh = FreshSender(receiver.name, _maker(receiver))
        try:
            fresh.make()
        except ConfigError as error:
            problems += error.problems
        senders[receiver.name] = fresh
    if problems:
        raise ConfigError(tuple(problems))
    return senders


def _maker(receiver: ReceiverSettings) -> Callable[[], Sender]:
    name, slack, webhook = receiver.name, receiver.slack, receiver.webhook
    if slack is not None:
        return lambda: SlackSender(name, slack.read_url())
    if webhook is not None:
        return lambda: _webhook(name, webhook)
    return lambda: StdoutSender(name, json=True)


def _webhook(name: str, webhook: WebhookReceiver) -> WebhookSender:
    secret = webhook.read_secret()
    return WebhookSender(
        name,
        webhook.read_url(),
        secret=None if secret is None else secret.encode(),
        allow_link_local=webhook.allow_link_local,
    )


_NAME_LIMIT = 40


def sample_page(receiver: str, at: datetime) -> dict[str, Any]:
    """A valid page with ``test`` true; its id holds the time, so that no two are one delivery."""
    incident = Incident(
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
    page = build_page(None, incident, "firing", at)
    name = cut(clean(receiver), _NAME_LIMIT)
    page["test"] = True
    page["summary"] = f"TEST driftwatch: a test page for {name}; nothing is wrong, do nothing"
    page["links"] = dict.fromkeys(page["links"])
    return page
