"""A row of each table, with every column that it ever had."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from driftwatch.store.tables import UtcTime

NOW = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
LATER = NOW + timedelta(hours=2)

_OPEN = {
    "id": "a" * 12,
    "key": 'X{instance="ü:1"}',
    "rule": "X",
    "alert": "Alert",
    "severity": "page",
    "target": '{"engine":"0","instance":"ü:1"}',
    "state": "firing",
    "started_at": NOW,
    "last_true_at": NOW,
    "firing_at": NOW,
    "acknowledged_at": LATER,
    "acknowledged_by": "ana",
    "page": '{"summary":"100 % \\u0000"}',
    "true_seconds": 60.125,
    "false_seconds": 0.0,
}
_SENT: dict[str, Any] = {
    "receiver": "inbox",
    "status": "sent",
    "attempts": 2,
    "last_attempt_at": NOW,
    "last_error": "HTTP 500",
    "sent_at": NOW,
}
_PENDING: dict[str, Any] = {
    "receiver": "other",
    "status": "pending",
    "attempts": 0,
    "next_attempt_at": NOW,
}
_DELIVERY = {
    "kind": "incident",
    "subject": "a" * 12,
    "incident_id": "a" * 12,
    "event": "firing",
    "number": 0,
    "reason": "first",
    "payload": '{"summary":"100 %"}',
    "payload_id": 6,
    "planned_at": NOW,
}
_BATCH = {"since": NOW, "until": LATER, "frame": bytes(range(256))}
_OF_TARGET = {"instance": "ü:1", "engine": "0", "pool": "p", "document": "{}"}
_REPORT = {"week": "2026-W09", "made_at": NOW, "document": '{"a":1}'}

ROWS: dict[str, list[dict[str, Any]]] = {
    "incidents": [
        _OPEN,
        {**_OPEN, "id": "b" * 12, "state": "resolved", "resolved_at": LATER, "severity": "notice"},
    ],
    "memory": [{"name": "m", "value": b"\x00\xff"}],
    "meta": [{"name": "other", "value": "1"}],
    "scrape_batches": [{"id": 7, **_BATCH}],
    "gpu_batches": [{"id": 7, **_BATCH}],
    "minute_batches": [
        {
            "id": 7,
            **_BATCH,
            "seconds": 60,
            "packed": 0,
            "first_instance": "Z:1",
            "last_instance": "a:1",
        }
    ],
    "day_batches": [{"day": NOW.replace(hour=0, microsecond=0), "frame": b"\x01"}],
    "checkpoint": [{"name": "speed", "at": NOW, "frame": b"\x01"}],
    "silences": [
        {
            "id": "c" * 12,
            "matchers": '[["alert","=","X"]]',
            "until": LATER,
            "created_by": "ana",
            "created_at": NOW,
            "comment": "",
            "starts_at": NOW,
        }
    ],
    "payloads": [{"id": 6, "document": _DELIVERY["payload"]}],
    "deliveries": [
        {"id": 3, **_DELIVERY, **_SENT},
        {"id": 4, **_DELIVERY, **_PENDING},
    ],
    "transitions": [{"incident_id": "a" * 12, "event": "firing", "at": NOW}],
    "pins": [
        {
            **_OF_TARGET,
            "id": "d" * 12,
            "scope": "target",
            "accepted_at": NOW,
            "accepted_by": "ana",
        }
    ],
    "calibrations": [{"instance": "ü:1", "engine": "0", "at": NOW, "document": "{}"}],
    "advice": [{**_OF_TARGET, "id": "e" * 12, "at": NOW, "incident_id": "a" * 12}],
    "verifications": [{**_OF_TARGET, "id": "f" * 12, "opened_at": NOW, "verdict": "open"}],
    "reports": [_REPORT],
    "report_deliveries": [{"id": 5, "week": "2026-W09", **_PENDING}],
    "marks": [
        {
            "incident_id": "a" * 12,
            "mark": "useful",
            "at": NOW,
            "by": "ana",
            "because": "it was true",
        }
    ],
    "actions": [
        {
            "id": 9,
            "incident_id": "a" * 12,
            "action": "acknowledge",
            "at": NOW,
            "by": "ana",
            "comment": "",
            "via": "command line",
        }
    ],
    "members": [
        {
            "name": "pod-0",
            "process": "b" * 32,
            "version": "0.11.0",
            "joined_at": NOW,
            "expires_at": NOW,
            "clock_ahead_seconds": 0.25,
        }
    ],
    "conversations": [{"incident_id": "a" * 12, "receiver": "inbox", "document": "{}"}],
    "task_failures": [
        {"key": "k", "name": "reports", "queue": "reports", "failed_at": NOW, "reason": "ü"}
    ],
}


def of_columns(name: str, row: Mapping[str, Any]) -> Any:
    kinds = {datetime: UtcTime(), bytes: sa.LargeBinary(), str: sa.Text(), int: sa.Integer()}
    return sa.table(
        name, *(sa.column(key, kinds.get(type(value), sa.Float())) for key, value in row.items())
    )
