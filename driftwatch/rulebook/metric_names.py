"""Metric names where a condition wants columns: which columns come from a metric."""

from __future__ import annotations

import re

from driftwatch.collect.registry import REGISTRY
from driftwatch.evidence import COLUMNS

MOST_COLUMNS = 3
_METRIC = re.compile(r"[a-zA-Z_]\w*:\w+")
_SERIES = re.compile(r"_(bucket|sum|count)$")


def metric_at(text: str, line: int, column: int) -> tuple[int, str] | None:
    """The metric name around a 1-based place of a text: its offset in the line, and the name."""
    of_line = text.split("\n")[line - 1] if line <= text.count("\n") + 1 else ""
    for match in _METRIC.finditer(of_line):
        if match.start() <= column - 1 < match.end():
            return match.start(), match.group()
    return None


def columns_from(metric: str) -> str:
    """Which columns to read in place of a metric, those that need the fewest inputs first."""
    name = _SERIES.sub("", metric)
    inputs = {
        one.column
        for one in REGISTRY
        if name in (one.wire_name, *(old.wire_name for old in one.old_names))
    }
    plain = [column.name for column in COLUMNS if column.name in inputs]
    rest = sorted(
        (column for column in COLUMNS if inputs.intersection(column.sources)),
        key=lambda column: (column.detected, len(column.sources), len(column.needs)),
    )
    names = plain or [column.name for column in rest][:MOST_COLUMNS]
    if not names:
        return "driftwatch evidence lists the columns"
    return f"write {' or '.join(names)}"
