"""An advice as a JSON document: what the store keeps and ``driftwatch recommend --json`` prints."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from driftwatch.model import Recommendation, Slo
from driftwatch.recommend.advice import Advice, Candidate, Gate
from driftwatch.recommend.calibration.fits import to_document

SCHEMA_VERSION = 1


def advice_document(advice: Advice) -> dict[str, Any]:
    """Base units, times as ISO 8601 with zone, None where unknown.

    Keys are the attributes of :class:`~driftwatch.recommend.advice.Advice`, with
    ``capacity_ratio``, ``utilization_ratio`` and ``schema_version`` beside them. Fields are only
    ever added.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "at": _iso(advice.at),
        "recommendation": recommendation_document(advice.recommendation),
        "gates": [_gate(one) for one in advice.gates],
        "slo": None if advice.slo is None else _slo(advice.slo),
        "slo_source": advice.slo_source,
        "calibration": None if advice.calibration is None else to_document(advice.calibration),
        "today": None if advice.today is None else candidate_document(advice.today),
        "candidates": [candidate_document(one) for one in advice.candidates],
        "what_ifs": [candidate_document(one) for one in advice.what_ifs],
        "advised": None if advice.advised is None else candidate_document(advice.advised),
        "capacity_reference_requests_per_second": advice.capacity_reference_requests_per_second,
        "capacity_ratio": advice.capacity_ratio,
        "utilization_ratio": advice.utilization_ratio,
        "offered_requests_per_second": advice.offered_requests_per_second,
        "settings": dict(advice.settings),
        "window_seconds": advice.window_seconds,
        "source": advice.source,
        "requests": advice.requests,
        "notes": list(advice.notes),
    }


def recommendation_document(said: Recommendation) -> dict[str, Any]:
    """The short form alone."""
    values = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(said).items()}
    return {**values, "reason": said.why, "reason_code": said.reason.code}


def candidate_document(one: Candidate) -> dict[str, Any]:
    """One row."""
    return {**asdict(one), "knobs": dict(one.knobs), "reasons": dict(one.reasons)}


def _gate(gate: Gate) -> dict[str, Any]:
    return asdict(gate)


def _slo(slo: Slo) -> dict[str, Any]:
    return asdict(slo)


def _iso(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
