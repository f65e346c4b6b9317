"""A verification as JSON, as the store, pages and ``driftwatch verify --json`` have it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, get_args

from driftwatch.verify.verification import Change, Effect, Kind, Verdict, Verification

SCHEMA_VERSION = 1


def to_document(found: Verification) -> dict[str, Any]:
    """The verification as JSON values; fields are only ever added."""
    return {
        "schema_version": SCHEMA_VERSION,
        "id": found.id,
        "instance": found.instance,
        "engine": found.engine,
        "pool": found.pool,
        "change": {
            "kind": found.change.kind,
            "at": _text(found.change.at),
            "what": [
                {"name": name, "before": one, "after": other}
                for name, (one, other) in found.change.what.items()
            ],
        },
        "opened_at": _text(found.opened_at),
        "closed_at": None if found.closed_at is None else _text(found.closed_at),
        "verdict": found.verdict,
        "reason": found.reason,
        "effects": [
            {
                "name": effect.name,
                "unit": effect.unit,
                "before": effect.before,
                "after": effect.after,
                "difference_low": effect.low,
                "difference_high": effect.high,
                "forecast": effect.forecast,
            }
            for effect in found.effects
        ],
        "matched_minutes": {
            "before": found.matched_minutes[0],
            "after": found.matched_minutes[1],
        },
        "forecast": None if found.forecast is None else dict(found.forecast),
        "incident_id": found.incident_id,
        "against": found.against,
        "notes": list(found.notes),
    }


def from_document(document: Mapping[str, Any]) -> Verification:
    """The verification that a document is of.

    Raises:
        ValueError: it is of a later schema, or names a verdict or kind that is none.
        KeyError: a field is missing.
    """
    if document["schema_version"] > SCHEMA_VERSION:
        raise ValueError(f"verification of schema {document['schema_version']}")
    change, matched = document["change"], document["matched_minutes"]
    if document["verdict"] not in get_args(Verdict) or change["kind"] not in get_args(Kind):
        raise ValueError(f"no verification: {document['verdict']!r} of {change['kind']!r}")
    closed = document["closed_at"]
    return Verification(
        id=document["id"],
        instance=document["instance"],
        engine=document["engine"],
        pool=document["pool"],
        change=Change(
            change["kind"],
            _time(change["at"]),
            {one["name"]: (one["before"], one["after"]) for one in change["what"]},
        ),
        opened_at=_time(document["opened_at"]),
        closed_at=None if closed is None else _time(closed),
        verdict=document["verdict"],
        reason=document["reason"],
        effects=tuple(
            Effect(
                one["name"],
                one["before"],
                one["after"],
                one["difference_low"],
                one["difference_high"],
                one["forecast"],
                one["unit"],
            )
            for one in document["effects"]
        ),
        matched_minutes=(matched["before"], matched["after"]),
        forecast=document["forecast"],
        incident_id=document["incident_id"],
        against=document["against"],
        notes=tuple(document["notes"]),
    )


def finite(found: Verification) -> bool:
    """Every number of its effects can be written as JSON."""
    return all(
        math.isfinite(number)
        for effect in found.effects
        for number in (effect.before, effect.after, effect.low, effect.high)
    )


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
