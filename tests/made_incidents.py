"""Incidents as the life cycle leaves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from driftwatch.incidents.incident import Incident, LastMessage, ServerCondition
from driftwatch.notify.page import Acknowledgement

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def incident_of(
    digit: str = "a",
    *,
    rule: str = "X",
    pool: str = "p",
    servers: Sequence[str] = ("host:8000",),
    at: datetime = NOON,
    firing: bool = True,
    **rest: Any,
) -> Incident:
    """One that began an hour before ``at`` and fired then, or is pending."""
    began = rest.pop("started_at", at - timedelta(hours=1))
    keys = (one.partition("/") for one in servers)
    conditions = tuple(
        ServerCondition(
            instance=instance,
            engine=engine or "0",
            since=began,
            last_true_at=at,
            true_seconds=60.0,
            met=firing,
        )
        for instance, _, engine in keys
    )
    values: dict[str, Any] = {
        "id": digit * 12 if len(digit) == 1 else digit,
        "rule": rule,
        "alert": rule,
        "severity": "page",
        "pool": pool,
        "servers": conditions,
        "started_at": began,
        "firing_at": at if firing else None,
        "told": LastMessage(at=at, servers=len(conditions)) if firing else None,
    }
    return Incident(**{**values, **rest})


def with_values(incident: Incident, **rest: Any) -> Incident:
    """The same incident with other values."""
    return incident.model_copy(update=rest)


def of_labels(target: Mapping[str, str], at: datetime, **rest: Any) -> Incident:
    """One about the server, or the pool, that labels name."""
    instance, engine = target.get("instance"), target.get("engine", "0")
    others = {k: v for k, v in target.items() if k not in ("instance", "engine", "pool")}
    servers = [] if instance is None else [f"{instance}/{engine}"]
    rest = {"labels": others, "pool": target.get("pool", "p"), **rest}
    rest.pop("acknowledged_at", None)
    if (by := rest.pop("acknowledged_by", None)) is not None:
        rest["acknowledgement"] = Acknowledgement(by=by, at=at)
    return incident_of(rest.pop("id"), servers=servers, at=at, **rest)
