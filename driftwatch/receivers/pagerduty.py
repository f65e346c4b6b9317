"""PagerDuty, through the Events API v2: alerts with their life.

The deduplication key is the incident's identity and its id: a resolve that is late, because
PagerDuty did not answer, must not close the next incident of the same server.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from driftwatch.errors import ConfigError, DeliveryError, Problem
from driftwatch.notify.advice import imperatives
from driftwatch.notify.headline import where
from driftwatch.notify.page import Links, Page
from driftwatch.numbers import clean, cut, utc_text
from driftwatch.receivers.http import JSON, Limits, post
from driftwatch.receivers.sender import Message
from driftwatch.settings.receivers import PagerdutyReceiver

# developer.pagerduty.com, Events API v2: "Send an alert event", "Size limits" (512 KB)
SUMMARY_LIMIT, DEDUP_LIMIT = 1024, 255
BODY_LIMIT = 500_000
ALERTS_PATH = "/v2/enqueue"
ROUTING_KEY_LENGTH = 32

_LIMITS = Limits(seconds=15.0)
_FIELD_LIMIT, _LINK_LIMIT, _HASH_DIGITS = 255, 2048, 16
_SEVERITY = {"page": "critical", "ticket": "warning", "notice": "info"}
_LINKS = (("runbook", "Runbook"), ("driftwatch", "Open driftwatch"))
_NO_ROOM = {"left_out": "the page has no room here: driftwatch incidents shows it"}

Action = Literal["trigger", "acknowledge", "resolve"]
# every other event that the table lets through is a trigger: a line in the alert's log
_ACTIONS: Mapping[str, Action] = {"resolved": "resolve"}


@dataclass(frozen=True, slots=True)
class PagerdutySender:
    """Sends events to one integration."""

    name: str  # receiver name, the only thing of it that errors print
    base_url: str  # without the path
    routing_key: str = field(repr=False)  # the integration key, a secret

    def send(self, message: Message) -> None:
        """Send one event; PagerDuty takes the same one twice for one.

        Raises DeliveryError: PagerDuty did not take it.
        """
        body = fitted({"routing_key": self.routing_key, **alert_event(message)})
        url, hidden = self.base_url + ALERTS_PATH, (self.routing_key,)
        answer = post(self.name, url, body, JSON, _LIMITS, secrets=hidden)
        if answer.json(self.name, "PagerDuty").get("status") != "success":
            raise DeliveryError(f"{self.name} answered, but took no event", permanent=False)


def dedup_key(page: Page) -> str:
    """Identity and incident id, at most 255 characters; no value is in it."""
    key, id_ = page.key, page.incident
    if len(key) + len(id_) + 1 > DEDUP_LIMIT:
        digest = hashlib.sha256(key.encode()).hexdigest()[:_HASH_DIGITS]
        key = f"{key[: DEDUP_LIMIT - len(id_) - _HASH_DIGITS - 2]}~{digest}"
    # the id of a test page holds its time: of many tests one alert is enough
    return key if page.test else f"{key}/{id_}"


def alert_event(message: Message) -> dict[str, Any]:
    """The event of an incident's message, without the routing key."""
    page = message.page
    action = _ACTIONS.get(message.event, "trigger")
    if message.event == "updated" and page.acknowledgement is not None:
        action = "acknowledge"
    event: dict[str, Any] = {"event_action": action, "dedup_key": dedup_key(page)}
    if action != "trigger":
        return event
    event["payload"] = {
        "summary": summary(message),
        "source": cut(where(page), _FIELD_LIMIT),
        "severity": _SEVERITY[page.severity],
        "timestamp": utc_text(page.times.evaluated_at),
        "component": "vllm",
        "class": cut(clean(page.alert), _FIELD_LIMIT),
        "custom_details": page.document(),
    }
    if pool := page.labels.get("pool"):
        event["payload"]["group"] = cut(clean(pool), _FIELD_LIMIT)
    event["client"] = "driftwatch"
    if page.links.driftwatch:
        event["client_url"] = page.links.driftwatch
    return event | _links(page.links)


def summary(message: Message) -> str:
    """Where, how bad, since when; do what: one line, for a list and a voice on the phone."""
    page = message.page
    if page.test:
        return cut(_ascii(clean(page.summary)), SUMMARY_LIMIT)
    bad, began = page.phrases.problem[0], page.times.started_at
    since = "" if "since " in bad else f" since {began:%H:%M} UTC"
    what = next(iter(imperatives(page)), "")
    word = "update, " if message.event == "updated" else ""
    do = f"; {what[:1].lower()}{what[1:]}" if what else ""
    text = f"{word}{where(page)}: {bad}{since}{do}"
    return cut(_ascii(text), SUMMARY_LIMIT)


def _ascii(text: str) -> str:
    """Arrows as a phone's voice and an SMS can have them."""
    return text.replace("→", "->")


def _links(links: Links) -> dict[str, Any]:
    rows = [
        {"href": href, "text": text}
        for name, text in _LINKS
        if (href := getattr(links, name)) and href.startswith("http") and len(href) <= _LINK_LIMIT
    ]
    return {"links": rows} if rows else {}


def fitted(event: dict[str, Any]) -> bytes:
    """The event as bytes within PagerDuty's limit; a page that has no room stays out of it."""
    body = orjson.dumps(event)
    if len(body) <= BODY_LIMIT:
        return body
    return orjson.dumps({**event, "payload": {**event["payload"], "custom_details": _NO_ROOM}})


def sender_of(name: str, settings: PagerdutyReceiver) -> PagerdutySender:
    """The sender of a receiver.

    Raises ConfigError: the integration key cannot be read, or is none.
    """
    key = settings.read("routing_key") or ""
    plain = set(key) <= {*string.ascii_letters, *string.digits}
    if len(key) != ROUTING_KEY_LENGTH or not plain:
        text = f"an integration key has {ROUTING_KEY_LENGTH} letters and digits"
        raise ConfigError((Problem(f"receiver {name}", None, None, "value", text),))
    return PagerdutySender(name, settings.base_url, key)
