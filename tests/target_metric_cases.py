"""Evidence rows for tests of the gauges per target."""

from __future__ import annotations

from typing import Any

import polars as pl

from driftwatch.service.metrics import TARGET_COLUMNS


def evidence_rows(*rows: dict[str, Any], **more: type[pl.DataType]) -> pl.DataFrame:
    """Rows of engine 0 with what is given, the rest unknown; ``more`` columns by their type."""
    schema = {
        "instance": pl.String,
        "engine": pl.String,
        "end": pl.Datetime("us", "UTC"),
        "binding_limit": pl.String,
        **dict.fromkeys((*TARGET_COLUMNS, "waiting_requests"), pl.Float64),
        "ever_seen": pl.Boolean,
        **more,
    }
    usual = {"engine": "0", "ever_seen": True}
    return pl.DataFrame([{**usual, **row} for row in rows], schema=schema)
