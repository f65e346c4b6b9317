"""Alertmanager v2: alerts posted to every one of a cluster, and again while they fire.

An Alertmanager keeps no alert over its restart, and resolves one that nobody posts again: so what
fires is posted each interval (:mod:`driftwatch.service.outbox`), not only once.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import orjson
import structlog

from driftwatch.clock import SystemClock
from driftwatch.errors import DeliveryError
from driftwatch.notify.numbers import utc_text
from driftwatch.notify.page_values import Page
from driftwatch.receivers.alerts import alert_of, conversation_of, labels_of, left_behind
from driftwatch.receivers.http import JSON, post
from driftwatch.receivers.sender import Conversation, Message
from driftwatch.settings.receivers.alertmanager import (
    INTERVALS_OF_AN_ALERT,
    AlertmanagerReceiver,
)

PATH = "/api/v2/alerts"
# of one request; the rest follows in another
MOST_ALERTS = 200


@dataclass(frozen=True, slots=True)
class AlertmanagerSender:
    """Posts alerts to every Alertmanager of a cluster: they share silences, not alerts."""

    name: str  # receiver name
    urls: Sequence[str]  # base URLs
    interval_seconds: float  # how often what fires is posted again
    labels: Mapping[str, str] = field(default_factory=dict)  # that every alert gets
    authorization: str | None = field(default=None, repr=False)  # value of that header, a secret
    now: Callable[[], datetime] = SystemClock().now

    def send(self, message: Message) -> Conversation:
        """Post one alert, firing or resolved; one Alertmanager that takes it is enough.

        With it the one ends that its incident had under other labels. Returns the alert's labels.
        Raises DeliveryError: none took it.
        """
        page, labels = message.payload, labels_of(message.payload, self.labels)
        resolved = page["times"]["resolved_at"] if message.event == "resolved" else None
        alerts = [alert_of(page, resolved or self._ends_at(), labels)]
        if (before := left_behind(message.conversation, labels)) is not None:
            alerts.append(alert_of(page, resolved or utc_text(self.now()), before))
        answers = self._post(alerts)
        failures = [failure for failure in answers.values() if failure is not None]
        if len(failures) == len(answers):
            # one that may take it later is worth trying again
            raise min(failures, key=lambda failure: failure.permanent)
        self._log(answers)
        return conversation_of(labels)

    def keep(self, pages: Iterable[Page], *, over: bool = False) -> dict[str, DeliveryError | None]:
        """Post again what fires, or what is ``over``; returns the host and port of each
        Alertmanager → why it did not take all of it, or None.
        """
        ends_at = utc_text(self.now()) if over else self._ends_at()
        return self._post([alert_of(one, ends_at, labels_of(one, self.labels)) for one in pages])

    def _ends_at(self) -> str:
        lasts = timedelta(seconds=INTERVALS_OF_AN_ALERT * self.interval_seconds)
        return utc_text(self.now().astimezone(UTC) + lasts)

    def _post(self, alerts: Sequence[Mapping[str, object]]) -> dict[str, DeliveryError | None]:
        parts = [alerts[at : at + MOST_ALERTS] for at in range(0, len(alerts), MOST_ALERTS)]
        bodies = [orjson.dumps(part) for part in parts]
        headers, secrets = dict(JSON), tuple[str, ...]()
        if self.authorization is not None:
            headers["Authorization"] = self.authorization
            secrets = _hidden(self.authorization)

        def post_to(url: str) -> DeliveryError | None:
            first: DeliveryError | None = None
            for body in bodies:
                try:
                    answer = post(self.name, url.rstrip("/") + PATH, body, headers, secrets=secrets)
                    if answer.text.strip():  # Alertmanager takes alerts without a word
                        raise answer.unexpected(self.name, "Alertmanager")
                except DeliveryError as error:
                    first = first or error
                    if not error.permanent:
                        break  # of one that hangs each part would cost the time of an exchange
            return first

        # at once, all parts: while one hangs the alerts of the others must not end
        with ThreadPoolExecutor(len(self.urls)) as pool:
            return dict(zip(map(_host, self.urls), pool.map(post_to, self.urls), strict=True))

    def _log(self, answers: Mapping[str, DeliveryError | None]) -> None:
        """One of a cluster that did not take it is no failure; the next interval tells it."""
        for host, failure in answers.items():
            if failure is not None:
                log = structlog.get_logger()
                log.warning(
                    "alertmanager refused", receiver=self.name, host=host, reason=failure.message
                )


def _hidden(authorization: str) -> tuple[str, ...]:
    """What an answer may repeat of the header: all of it, the token, the login in plain text."""
    scheme, _, token = authorization.partition(" ")
    login = b64decode(token).decode() if scheme == "Basic" else ""
    return (authorization, token, login, login.partition(":")[2])


def _host(url: str) -> str:
    return urlsplit(url).netloc


def sender_of(name: str, settings: AlertmanagerReceiver) -> AlertmanagerSender:
    """The sender of a receiver.

    Raises ConfigError: a secret cannot be read.
    """
    authorization = None
    if (token := settings.read("bearer_token")) is not None:
        authorization = f"Bearer {token}"
    elif (auth := settings.basic_auth) is not None:
        pair = f"{auth.username}:{auth.read('password')}"
        authorization = f"Basic {b64encode(pair.encode()).decode()}"
    return AlertmanagerSender(
        name, settings.urls, settings.interval, settings.labels, authorization
    )
