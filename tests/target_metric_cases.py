"""Evidence rows for tests of the gauges per target."""

from __future__ import annotations

from typing import Any

import polars as pl

from driftwatch.service.target_metrics import TARGET_COLUMNS


def evidence_rows(*rows: dict[str, Any]) -> pl.DataFrame:
    """Rows of engine 0 with what is given, the rest unknown."""
    schema = {
        "instance": pl.String,
        "engine": pl.String,
        "end": pl.Datetime("us", "UTC"),
        "binding_limit": pl.String,
        **dict.fromkeys(TARGET_COLUMNS, pl.Float64),
    }
    return pl.DataFrame([{"engine": "0", **row} for row in rows], schema=schema)
