"""The evidence table's schema as data: docs, ``driftwatch evidence`` and every check read this.

One row per target and window (a minute, unless asked otherwise). NULL is unknown, never 0;
NaN and infinities become NULL before any condition sees them.

A module a theme, in the table's order; each column says in its place what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping

from driftwatch.evidence.batch import BATCH
from driftwatch.evidence.capacity import CAPACITY, SLO
from driftwatch.evidence.demand import CACHE, DEMAND
from driftwatch.evidence.engine import ENGINE
from driftwatch.evidence.gpus import GPUS
from driftwatch.evidence.latency import LATENCY
from driftwatch.evidence.lengths import DRIFT, LENGTHS
from driftwatch.evidence.limits import LIMITS
from driftwatch.evidence.schema import Column, DType, Need
from driftwatch.evidence.speed import SPEED
from driftwatch.evidence.target import (
    COVERAGE,
    KNOBS,
    RELEASE,
    RELEASE_COMPARISON,
    RELEASE_SINCE_PIN,
    RESTARTS,
)
from driftwatch.evidence.throughput import THROUGHPUT
from driftwatch.evidence.traffic import TRAFFIC
from driftwatch.evidence.trends import ATTRIBUTION, TRENDS

__all__ = [
    "BY_NAME",
    "COLUMNS",
    "DETECTED",
    "NOT_CONTINUOUS",
    "Column",
    "DType",
    "Need",
    "search",
]

COLUMNS: tuple[Column, ...] = (
    *BATCH,
    *LENGTHS,
    *THROUGHPUT,
    *ENGINE,
    *LATENCY,
    *CACHE,
    *DEMAND,
    *GPUS,
    *SPEED,
    *TRAFFIC,
    *TRENDS,
    *ATTRIBUTION,
    *LIMITS,
    *SLO,
    *COVERAGE,
    *CAPACITY,
    *KNOBS,
    *RELEASE,
    *RESTARTS,
)

# Columns that detectors with a past add to the minutes; a window has those of its last minute.
DETECTED: tuple[str, ...] = tuple(
    column.name
    for column in (
        *SPEED,
        *TRAFFIC,
        *TRENDS,
        *ATTRIBUTION,
        RELEASE_SINCE_PIN,
        RELEASE_COMPARISON,
        *DRIFT,
    )
)

BY_NAME: Mapping[str, Column] = {column.name: column for column in COLUMNS}

_PADS_NOTHING = (
    "exists only where batches are padded (static and dynamic batchers); "
    "vLLM batches continuously and pads nothing"
)
NOT_CONTINUOUS: Mapping[str, str] = dict.fromkeys(
    ("batch_efficiency", "padding waste", "bucketing"), _PADS_NOTHING
)


def search(term: str) -> tuple[Column, ...]:
    """Columns whose name, alias or meaning contains ``term`` (case-insensitive)."""
    needle = term.lower().strip()
    plain = needle.replace("_", " ")
    by_name = [
        c
        for c in COLUMNS
        if needle in c.name or any(plain in alias.lower().replace("_", " ") for alias in c.aliases)
    ]
    rest = [c for c in COLUMNS if c not in by_name and plain in c.meaning.lower()]
    return (*by_name, *rest)
