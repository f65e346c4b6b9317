"""GPU readings of many parts are one table in one piece."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from driftwatch.collect.gpus import GPU_SCHEMA
from driftwatch.collect.recordings.compact import CompactRecordingSource, write_manifest, write_part
from driftwatch.collect.schema import empty_scrapes
from driftwatch.signals.gpus import GPU_TARGET_SCHEMA
from driftwatch.signals.gpus.joins import linked, servers


def test_readings_of_several_parts_find_their_servers(tmp_path: Path) -> None:
    start = datetime(2026, 11, 16, tzinfo=UTC)
    parts = []
    for number in range(3):
        times = [start + timedelta(seconds=30 * k) for k in range(1000)]
        rows = pl.DataFrame(
            {"time": times, "exporter": f"h{number}:9400", "uuid": f"GPU-{number}", "gpu": "0"},
            schema_overrides={"time": GPU_SCHEMA["time"]},
        )
        rows = pl.concat([pl.DataFrame(schema=dict(GPU_SCHEMA)), rows], how="diagonal")
        parts += write_part(tmp_path, f"{number}", empty_scrapes(), rows)
    write_manifest(tmp_path, parts, {})
    source = CompactRecordingSource(tmp_path)
    gpus = source.collect(start, start + timedelta(days=1)).gpus
    assert len(gpus) == 3000
    targets = pl.DataFrame(schema=dict(GPU_TARGET_SCHEMA))
    assert linked(gpus, servers(targets)).is_empty()  # nobody is known, and nothing panics
    assert gpus.n_chunks() == 1
