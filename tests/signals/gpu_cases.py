"""Readings and targets for the tests of GPUs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.gpus import TIME, gpu_frame
from driftwatch.signals.gpu_links import GPU_TARGET_SCHEMA
from driftwatch.signals.gpus import gpu_columns

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


READ = {
    "utilization_ratio": 0.9,
    "sm_clock_hertz": 1.98e9,
    "power_watts": 500.0,
    "framebuffer_used_bytes": 7e10,
    "clock_event_reasons": 0.0,
    "lost": False,
}


def reading(second: Any = 10.0, **values: Any) -> dict[str, Any]:
    row = {
        "origin": "DCGM",
        "exporter": "node-1:9400",
        "time": NOON + timedelta(seconds=second),
        "hostname": "node-1",
        "own_host": False,
        "gpu": "0",
        "uuid": "GPU-a",
        "namespace": "prod",
        "pod": "rag-0",
        "container": "vllm",
    }
    return row | READ | values


def target(instance: str = "10.0.0.1:8000", **values: Any) -> dict[str, Any]:
    host = instance.rpartition(":")[0]
    row: dict[str, Any] = {
        "instance": instance,
        "engine": "0",
        "cluster": None,
        "namespace": "prod",
        "pod": "rag-0",
        "host": host,
        "own_host": False,
        "gpu_uuids": [],
        "gpus_declared": None,
    }
    return row | values


def targets(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=dict(GPU_TARGET_SCHEMA), orient="row")


def windows(known: pl.DataFrame, *minutes: int, length: float = 60.0) -> pl.DataFrame:
    spans = pl.DataFrame(
        [
            (NOON + timedelta(minutes=m), NOON + timedelta(minutes=m, seconds=length))
            for m in minutes or (0,)
        ],
        schema={"start": TIME, "end": TIME},
        orient="row",
    )
    return known.select("instance", "engine").join(spans, how="cross", maintain_order="left_right")


def seen(
    readings: list[dict[str, Any]], *rows: dict[str, Any], length: float = 60.0
) -> list[dict[str, Any]]:
    """The columns of the first minute, a row per target."""
    known = targets(*(rows or (target(),)))
    found = gpu_columns(windows(known, length=length), gpu_frame(readings), known)
    return found.to_dicts()


def one(
    readings: list[dict[str, Any]], *rows: dict[str, Any], length: float = 60.0
) -> dict[str, Any]:
    (row,) = seen(readings, *rows, length=length)
    return row


def counted(row: dict[str, Any]) -> tuple[float | None, str | None]:
    return row["gpu_count"], row["gpu_count_source"]


NVML: dict[str, Any] = {"origin": "NVML", "exporter": "nvml:node-1", "own_host": True, "pod": None}
