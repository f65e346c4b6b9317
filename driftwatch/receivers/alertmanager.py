"""Alertmanager v2: alerts posted to every one of a cluster, and again while they fire.

An Alertmanager keeps no alert over its restart, and resolves one that nobody posts again: so what
fires is posted each interval (:mod:`driftwatch.service.outbox`), not only once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import orjson
import structlog

from driftwatch.clock import SystemClock
from driftwatch.errors import DeliveryError
from driftwatch.notify.page import Page
from driftwatch.numbers import cut, utc_text
from driftwatch.receivers.http import JSON, login_secrets, post, unexpected
from driftwatch.receivers.letter import letter_of
from driftwatch.receivers.sender import Configured, Message, message_of
from driftwatch.settings.receivers import INTERVALS_OF_AN_ALERT, AlertmanagerReceiver

PATH = "/api/v2/alerts"
MOST_ALERTS = 200  # of one request; the rest follows in another
_VALUE_LIMIT, _TEXT_LIMIT = 500, 4000
_NO_LABEL = re.compile(r"^(?=\d)|[^A-Za-z0-9_]")


def labels_of(page: Page, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The alert's labels, sorted; ``extra``: from the configuration, behind the page's own."""
    own = {"alertname": page.alert, "severity": page.severity}
    if page.rule != page.alert:
        # several rules may have one alert name: the resolve of one must not end the other's alert
        own["rule"] = page.rule
    return _named({**(extra or {}), **page.labels, **own}, _VALUE_LIMIT)


def _named(texts: Mapping[str, str | None], limit: int) -> dict[str, str]:
    """Names and texts as Alertmanager takes them, sorted; an empty text is none there."""
    named = {_NO_LABEL.sub("_", name): cut(text, limit) for name, text in texts.items() if text}
    return {name: named[name].encode("utf-8", "replace").decode() for name in sorted(named)}


def alert_of(page: Page, labels: Mapping[str, str], ends_at: datetime) -> dict[str, Any]:
    """An alert as ``POST /api/v2/alerts`` takes it, the rule's annotations behind our own."""
    ours = {
        "summary": page.summary,
        "description": "\n".join(f"{label}: {t}" for label, t in letter_of(message_of(page)).lines),
        "servers": ", ".join(page.servers.first),
        "runbook_url": page.links.runbook,
        "dashboard_url": page.links.driftwatch,
        "explain": page.links.explain,
        "acknowledge": page.links.ack,
        "incident": page.incident,
    }
    given = {name: text for name, text in ours.items() if text}
    return {
        "labels": labels,
        "annotations": _named({**page.annotations, **given}, _TEXT_LIMIT),
        "startsAt": utc_text(page.times.started_at),
        "endsAt": utc_text(ends_at),
        "generatorURL": page.links.driftwatch or "",
    }


@dataclass(frozen=True, slots=True)
class AlertmanagerSender(Configured[AlertmanagerReceiver]):
    """Posts alerts to every Alertmanager of a cluster: they share silences, not alerts."""

    now: Callable[[], datetime] = SystemClock().now

    def send(self, message: Message) -> None:
        """Post one alert, firing or resolved; one Alertmanager that takes it is enough.

        Raises DeliveryError: none took it.
        """
        answers = self.keep([message.page])
        failures = {host: failure for host, failure in answers.items() if failure is not None}
        if len(failures) == len(answers):
            # one that may take it later is worth trying again
            raise min(failures.values(), key=lambda failure: failure.permanent)
        for host, failure in failures.items():
            log, why = structlog.get_logger(), failure.message
            log.warning("alertmanager refused", receiver=self.name, host=host, reason=why)

    def keep(self, pages: Iterable[Page], *, over: bool = False) -> dict[str, DeliveryError | None]:
        """Post what fires, or is ``over``; returns the host and port of each Alertmanager → why it
        did not take all of it, or None.
        """
        lasts_seconds = 0.0 if over else INTERVALS_OF_AN_ALERT * self.settings.interval
        ends_at, labels = self.now() + timedelta(seconds=lasts_seconds), self.settings.labels
        alerts = [
            alert_of(page, labels_of(page, labels), page.times.resolved_at or ends_at)
            for page in pages
        ]
        parts = [alerts[at : at + MOST_ALERTS] for at in range(0, len(alerts), MOST_ALERTS)]
        bodies, urls = [orjson.dumps(part) for part in parts], self.settings.urls
        headers, hidden = self._headers()
        # at once, all parts: while one hangs the alerts of the others must not end
        with ThreadPoolExecutor(len(urls)) as pool:
            answers = list(pool.map(lambda url: self._post(url, bodies, headers, hidden), urls))
        return {urlsplit(url).netloc: one for url, one in zip(urls, answers, strict=True)}

    def _headers(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The headers, and what of them an answer may repeat."""
        settings, headers, hidden = self.settings, dict(JSON), tuple[str, ...]()
        if settings.tenant is not None:
            headers["X-Scope-OrgID"] = settings.tenant
        if (token := settings.read("bearer_token")) is not None:
            headers["Authorization"], hidden = f"Bearer {token}", (token,)
        elif (auth := settings.basic_auth) is not None:
            hidden = login_secrets(f"{auth.username}:{auth.read('password')}")
            headers["Authorization"] = f"Basic {hidden[-1]}"
        return headers, hidden

    def _post(
        self, url: str, bodies: Sequence[bytes], headers: Mapping[str, str], hidden: Sequence[str]
    ) -> DeliveryError | None:
        first: DeliveryError | None = None
        for body in bodies:
            try:
                answer = post(self.name, url.rstrip("/") + PATH, body, headers, hidden)
                # Alertmanager takes alerts without a word, Mimir's with an empty object
                if answer.body.strip() not in (b"", b"{}"):
                    raise unexpected(answer, self.name, "Alertmanager")
            except DeliveryError as error:
                first = first or error
                if not error.permanent:
                    break  # of one that hangs each part would cost the time of an exchange
        return first
