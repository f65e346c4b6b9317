"""PagerDuty, through the Events API v2: alerts with their life.

The deduplication key is the incident's identity and its id: a resolve that is late, because
PagerDuty did not answer, must not close the next incident of the same pool.
"""

from __future__ import annotations

import hashlib
import string
from dataclasses import dataclass
from typing import Any

import orjson

from driftwatch.errors import ConfigError, DeliveryError, Problem
from driftwatch.notify.advice import imperatives
from driftwatch.notify.headline import where
from driftwatch.notify.page import Page
from driftwatch.numbers import clean, cut, utc_text
from driftwatch.receivers.http import json_of, post
from driftwatch.receivers.letter import letter_of
from driftwatch.receivers.sender import Configured, Message
from driftwatch.settings.receivers import PagerdutyReceiver

# developer.pagerduty.com, Events API v2: "Send an alert event", "Size limits" (512 KB)
SUMMARY_LIMIT, DEDUP_LIMIT, FIELD_LIMIT, BODY_LIMIT = 1024, 255, 255, 500_000
ALERTS_PATH = "/v2/enqueue"
ROUTING_KEY_LENGTH = 32
_SECONDS = 15.0
_SEVERITY = {"page": "critical", "ticket": "warning", "notice": "info"}
_NO_ROOM = {"left_out": "the page has no room here: driftwatch incidents shows it"}


@dataclass(frozen=True, slots=True)
class PagerdutySender(Configured[PagerdutyReceiver]):
    """Sends events to one integration."""

    def check(self) -> None:
        """Raises ConfigError: the integration key cannot be read, or is none."""
        key = self.settings.read("routing_key") or ""
        if len(key) != ROUTING_KEY_LENGTH or not {*key} <= {*string.ascii_letters, *string.digits}:
            text = f"an integration key has {ROUTING_KEY_LENGTH} letters and digits"
            raise ConfigError((Problem(f"receiver {self.name}", None, None, "value", text),))

    def send(self, message: Message) -> None:
        """Send one event; PagerDuty takes the same one twice for one.

        Raises DeliveryError: PagerDuty did not take it.
        """
        key = self.settings.read("routing_key") or ""
        event = {"routing_key": key, **alert_event(message)}
        if len(body := orjson.dumps(event)) > BODY_LIMIT:
            event["payload"]["custom_details"] = _NO_ROOM
            body = orjson.dumps(event)
        url = self.settings.base_url + ALERTS_PATH
        answer = post(self.name, url, body, secrets=(key,), seconds=_SECONDS)
        if json_of(answer, self.name, "PagerDuty").get("status") != "success":
            raise DeliveryError(f"{self.name} answered, but took no event", permanent=False)


def dedup_key(page: Page) -> str:
    """Identity and incident id, at most 255 characters; no value is in it."""
    key = page.key
    if len(key) + len(page.incident) + 1 > DEDUP_LIMIT:
        key = hashlib.sha256(key.encode()).hexdigest()
    # the id of a test page holds its time: of many tests one alert is enough
    return key if page.test else f"{key}/{page.incident}"


def alert_event(message: Message) -> dict[str, Any]:
    """The event of an incident's message, without the routing key. What neither acknowledges nor
    resolves is a trigger: a line in the alert's log.
    """
    page, key = message.page, dedup_key(message.page)
    if message.event == "resolved":
        return {"event_action": "resolve", "dedup_key": key}
    if page.acknowledgement is not None:
        return {"event_action": "acknowledge", "dedup_key": key}
    event: dict[str, Any] = {"event_action": "trigger", "dedup_key": key, "client": "driftwatch"}
    event["payload"] = {
        "summary": summary(page),
        "source": cut(where(page), FIELD_LIMIT),
        "severity": _SEVERITY[page.severity],
        "timestamp": utc_text(page.times.evaluated_at),
        "component": "vllm",
        "group": cut(clean(page.pool or ""), FIELD_LIMIT),
        "class": cut(clean(page.alert), FIELD_LIMIT),
        "custom_details": page.document(),
    }
    links = letter_of(message).links
    event["links"] = [{"href": address, "text": word} for word, address in links]
    return event | ({"client_url": page.links.driftwatch} if page.links.driftwatch else {})


def summary(page: Page) -> str:
    """Where, how bad, since when; do what: one line, for a list and a voice on the phone."""
    if page.test:
        return cut(page.summary, SUMMARY_LIMIT)
    bad, what = page.phrases.problem[0], next(iter(imperatives(page)), "")
    word = "update, " if page.event == "updated" else ""
    since = "" if "since " in bad else f" since {page.times.started_at:%H:%M} UTC"
    do = f"; {what[:1].lower()}{what[1:]}" if what else ""
    # arrows as a phone's voice and an SMS can have them
    return cut(f"{word}{where(page)}: {bad}{since}{do}".replace("→", "->"), SUMMARY_LIMIT)
