"""PagerDuty's Events API v2 on the loopback: it refuses what the real one refuses.

Sources: developer.pagerduty.com, "Events API v2 overview" (response codes, 512 KB, routing keys
that begin with R take no change events), "Send an alert event" (fields, 255 and 1024 characters,
what trigger, acknowledge and resolve do to an alert), "Send a change event", and the OpenAPI
document of PagerDuty/api-schema (``reference/events-v2``) for required fields, types and answers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jsonschema import Draft202012Validator

from fakes.loopback import Answer, LoopbackServer, Request

ALERTS_PATH = "/v2/enqueue"
LARGEST_BYTES = 512 * 1024
ROUTING_KEY = "canaryPagerdutyRoutingKey0123456"  # of a server in a test

_LINKS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["href"],
        "properties": {
            "href": {"type": "string", "pattern": "^https?://"},
            "text": {"type": "string"},
        },
    },
}
_KEY = {"type": "string", "minLength": 32, "maxLength": 32}
_COMMON = {
    "summary": {"type": "string", "minLength": 1, "maxLength": 1024},
    "source": {"type": "string", "minLength": 1},
    "timestamp": {"type": "string", "format": "date-time"},
    "custom_details": {"type": "object"},
}
# the published documents as JSON Schema (2020-12)
ALERT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["routing_key", "event_action"],
    "properties": {
        "routing_key": _KEY,
        "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
        "dedup_key": {"type": "string", "minLength": 1, "maxLength": 255},
        "client": {"type": "string"},
        "client_url": {"type": "string", "pattern": "^https?://"},
        "links": _LINKS,
        "images": {"type": "array"},
        "payload": {
            "type": "object",
            "required": ["summary", "source", "severity"],
            "properties": {
                **_COMMON,
                "severity": {"enum": ["critical", "error", "warning", "info"]},
                **{name: {"type": "string"} for name in ("component", "group", "class")},
            },
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
    "if": {"properties": {"event_action": {"const": "trigger"}}},
    "then": {"required": ["payload"]},
    "else": {"required": ["dedup_key"]},
}


@dataclass(slots=True)
class Alert:
    """One alert of a service."""

    dedup_key: str
    state: Literal["triggered", "acknowledged", "resolved"] = "triggered"
    notified: int = 1  # how often on-call was notified
    triggers: list[Mapping[str, Any]] = field(default_factory=list)  # its trigger events, in order


class PagerdutyServer(LoopbackServer):
    """Takes events at :attr:`address`.

    Attributes:
        alerts: every alert that was opened, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self._validators = {ALERTS_PATH: Draft202012Validator(ALERT_SCHEMA)}
        self.alerts: list[Alert] = []

    def judge(self, request: Request) -> Answer:
        validator = self._validators.get(request.path)
        if validator is None:
            return Answer(404, "Not Found")
        if request.method != "POST":
            return Answer(405, "Method Not Allowed")
        if len(request.body) > LARGEST_BYTES:
            return Answer(413, "Payload Too Large")
        try:
            event = json.loads(request.body)
        except ValueError:
            return _invalid("Unrecognized object", ["JSON parse error"])
        errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(event)]
        if errors:
            return _invalid("invalid event", errors)
        if event["routing_key"] != ROUTING_KEY:
            return _invalid("invalid event", ["'routing_key' is not a valid integration key"])
        key = event.get("dedup_key") or uuid.uuid4().hex
        self._apply(event, key)
        return _accepted({"message": "Event processed", "dedup_key": key})

    def open_alert(self, dedup_key: str) -> Alert | None:
        same = (one for one in self.alerts if one.dedup_key == dedup_key)
        return next((one for one in same if one.state != "resolved"), None)

    def _apply(self, event: Mapping[str, Any], key: str) -> None:
        """What the event does; without an open alert the others than a trigger are dropped."""
        alert = self.open_alert(key)
        if event["event_action"] == "trigger":
            if alert is None:
                alert = Alert(key)
                self.alerts.append(alert)
            alert.triggers.append(event)
        elif alert is not None:
            alert.state = {"acknowledge": "acknowledged", "resolve": "resolved"}[
                event["event_action"]
            ]


def _accepted(more: Mapping[str, str]) -> Answer:
    return Answer(
        202, json.dumps({"status": "success", **more}), {"Content-Type": "application/json"}
    )


def _invalid(status: str, errors: list[str]) -> Answer:
    body = {"status": status, "message": "Event object is invalid", "errors": errors}
    return Answer(400, json.dumps(body), {"Content-Type": "application/json"})
