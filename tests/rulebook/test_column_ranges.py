"""The ranges of columns.toml hold on recorded servers: a lint may rest on them."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
from pipeline_cases import KEY, evidence, grid, recording, serving

from driftwatch.detect.reference import baseline_of_minutes
from driftwatch.evidence import BY_NAME
from driftwatch.signals.minutes import minutes

SETTINGS = {
    "max_num_seqs": 64.0,
    "max_num_batched_tokens": 2048.0,
    "slo_ttft_seconds": 0.5,
    "slo_tpot_seconds": 0.05,
}


def test_every_recorded_value_lies_in_its_range(shared_data: Path) -> None:
    frame = recording(shared_data / "vllm-0.32" / "run_cap")
    asked = grid(frame)
    settings = serving(frame, **SETTINGS)
    before = asked.slice(0, len(asked) // 3)
    before = before.group_by(KEY).agg(pl.col("start").min(), pl.col("end").max())
    before_it = evidence(frame, before.select(asked.columns), settings)
    reference = baseline_of_minutes(minutes(before_it))
    rows = evidence(frame, asked, settings, reference=reference)
    compared = 0
    for name in rows.columns:
        column = BY_NAME.get(name)
        values = rows[name].drop_nulls() if column is not None else pl.Series()
        if column is None or values.is_empty():
            continue
        if column.dtype == "float":
            values = values.cast(pl.Float64)
            values = values.filter(values.is_finite())
            low = -math.inf if column.low is None else column.low
            high = math.inf if column.high is None else column.high
            outside = values.filter((values < low) | (values > high))
            assert outside.is_empty(), (name, outside.to_list())
            compared += column.low is not None
        elif column.words:
            assert set(values) <= set(column.words), name
    assert compared > 40
