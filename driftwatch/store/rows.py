"""Rows of the tables to the values of the house, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import RowMapping

from driftwatch.documents import to_json
from driftwatch.model import Incident
from driftwatch.notify.plan import Delivery, PlannedDelivery
from driftwatch.notify.silence import Matcher, Silence

# a person's, from the command line: the tick never writes them
ACKNOWLEDGEMENT = ("acknowledged_at", "acknowledged_by")
INCIDENT_COLUMNS = tuple(field.name for field in fields(Incident))


def chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Ids in groups small enough for one ``IN (...)``."""
    return (ids[start : start + 500] for start in range(0, len(ids), 500))


def incident_row(incident: Incident) -> dict[str, Any]:
    """An incident as the columns of its row."""
    page = None if incident.page is None else to_json(incident.page)
    row = {name: getattr(incident, name) for name in INCIDENT_COLUMNS}
    return {**row, "target": to_json(dict(incident.target)), "page": page}


def incident_of(row: RowMapping) -> Incident:
    """A row as an incident."""
    page = row["page"]
    return Incident(
        **{
            **row,
            "target": json.loads(row["target"]),
            "page": None if page is None else json.loads(page),
        }
    )


def delivery_row(planned: PlannedDelivery) -> dict[str, Any]:
    """A planned delivery as a new row of the outbox."""
    return {
        "incident_id": planned.incident_id,
        "event": planned.event,
        "receiver": planned.receiver,
        "reason": planned.reason,
        "payload": to_json(planned.payload),
        "planned_at": planned.planned_at,
        "status": "pending",
        "attempts": 0,
        "next_attempt_at": planned.planned_at,
    }


def delivery_of(row: RowMapping) -> Delivery:
    """A row of the outbox as a delivery."""
    return Delivery(**{**row, "payload": json.loads(row["payload"])})


def silence_row(silence: Silence) -> dict[str, Any]:
    """A silence as the columns of its row."""
    matchers = to_json([[m.name, m.operator, m.value] for m in silence.matchers])
    row = {field.name: getattr(silence, field.name) for field in fields(Silence)}
    return {**row, "matchers": matchers}


def silence_of(row: RowMapping) -> Silence:
    """A row as a silence."""
    matchers = tuple(Matcher(*parts) for parts in json.loads(row["matchers"]))
    return Silence(**{**row, "matchers": matchers})
