"""Alertmanager v2: alerts posted to every one of a cluster, and again while they fire.

An Alertmanager keeps no alert over its restart, and resolves one that nobody posts again: so what
fires is posted each interval (:mod:`driftwatch.service.outbox`), not only once.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import orjson
import structlog

from driftwatch.clock import SystemClock
from driftwatch.errors import DeliveryError
from driftwatch.notify.advice import imperatives
from driftwatch.notify.headline import where
from driftwatch.notify.page import Page
from driftwatch.numbers import clean, cut, moment, utc_text
from driftwatch.receivers.http import JSON, post
from driftwatch.receivers.sender import Conversation, Message
from driftwatch.settings.receivers import (
    INTERVALS_OF_AN_ALERT,
    AlertmanagerReceiver,
)

_VALUE_LIMIT, _TEXT_LIMIT = 500, 4000
_NO_LABEL = re.compile(r"[^A-Za-z0-9_]")


def labels_of(page: Page, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The alert's labels, sorted; ``extra``: from the configuration, behind the page's own."""
    own = {"alertname": page.alert, "severity": page.severity}
    if page.rule != page.alert:
        # several rules may have one alert name: the resolve of one must not end the other's alert
        own["rule"] = page.rule
    labels = {**(extra or {}), **page.labels, **own}
    named = {_label_name(name): cut(str(text), _VALUE_LIMIT) for name, text in labels.items()}
    # an empty value is no label there
    return {name: _encodable(text) for name, text in sorted(named.items()) if text}


def conversation_of(labels: Mapping[str, str]) -> Conversation:
    """What the next message of the incident needs to know: the labels of its alert."""
    return {"labels": json.dumps(labels)}


def left_behind(before: Conversation | None, labels: Mapping[str, str]) -> dict[str, str] | None:
    """The labels of the alert that the receiver has, where the incident has others by now: a
    pool's incident speaks for other servers than on its first page. None: they are the same.
    """
    stored: dict[str, str] | None = json.loads((before or {}).get("labels", "null"))
    return None if stored is None or stored == labels else stored


def _label_name(name: str) -> str:
    plain = _NO_LABEL.sub("_", name)
    return f"_{plain}" if not plain or plain[0].isdigit() else plain


def _encodable(text: str) -> str:
    """Valid UTF-8, as every label must be."""
    return text.encode("utf-8", "replace").decode()


def annotations_of(page: Page) -> dict[str, str]:
    """Texts for people, sorted: summary, description, what to run; then the rule's own."""
    links = page.links
    ours = {
        "summary": _summary(page),
        "description": "\n".join(_lines(page)),
        "runbook_url": links.runbook,
        "dashboard_url": links.driftwatch,
        "explain": links.explain,
        "acknowledge": links.ack,
        "acknowledged": acknowledged_text(page),
        "incident": page.incident,
    }
    theirs = {_label_name(name): str(text) for name, text in page.annotations.items()}
    both = {**theirs, **{name: text for name, text in ours.items() if text}}
    return {n: _encodable(cut(text, _TEXT_LIMIT)) for n, text in sorted(both.items())}


def acknowledged_text(page: Page) -> str | None:
    """Who has it, None where nobody has it."""
    by = page.acknowledgement
    if by is None:
        return None
    at = moment(by.at, page.times.evaluated_at.date())
    why = f": {clean(by.comment)}" if by.comment else ""
    return f"by {clean(by.by)} at {at}{why}"


def _summary(page: Page) -> str:
    """Line 1 without the word of the state: Alertmanager has its own."""
    if page.test:
        return page.summary
    text = f"{where(page)}: {page.phrases.problem[0]}"
    do = next(iter(imperatives(page)), "")
    return f"{text}. {do}" if do else text


def _lines(page: Page) -> Iterable[str]:
    today = page.times.evaluated_at.date()
    for line in page.lines:
        stamp = "" if line.at is None else moment(line.at, today)
        yield f"{line.label}: {': '.join(filter(None, (stamp, line.text)))}"


def alert_of(page: Page, ends_at: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """An alert as ``POST /api/v2/alerts`` takes it; ``ends_at``: RFC 3339."""
    alert = {
        "labels": labels,
        "annotations": annotations_of(page),
        "startsAt": utc_text(page.times.started_at),
        "endsAt": ends_at,
    }
    url = page.links.driftwatch
    return {**alert, "generatorURL": url} if url else alert


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
        page, labels = message.page, labels_of(message.page, self.labels)
        ended = page.times.resolved_at if message.event == "resolved" else None
        resolved = None if ended is None else utc_text(ended)
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
