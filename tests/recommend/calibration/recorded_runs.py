"""The recorded GPU and CPU runs as a calibration gets them, and what came of each."""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pipeline_cases import floor_minute

from driftwatch.cli.options import plan_from
from driftwatch.collect.recordings import open_recording
from driftwatch.diagnose.evidence_table import evidence_table, rows_of_scrapes
from driftwatch.minutes.rows import minute_grid
from driftwatch.model import Serving, Setting
from driftwatch.recommend.traffic.observed import CHUNK_SCHEMA, Observed, Server
from driftwatch.signals.minutes import minutes
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests, make_requests

GPU_RUNS = {
    "RTX4090_Llama-3.1-8B": "NVIDIA GeForce RTX 4090",
    "RTXPRO6000_Llama-3.1-8B": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
}
TIMES = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
AT = datetime(2026, 8, 20, tzinfo=UTC)


# --- real GPUs


@dataclass(frozen=True)
class GpuRun:
    """One run of 300 requests on the engine's own clock, 0 at the first of them."""

    name: str
    meta: dict[str, Any]
    rows: pl.DataFrame
    ticks: pl.DataFrame

    @property
    def half(self) -> float:
        """The middle of its time."""
        return float(self.rows["last_token_ts"].max()) / 2  # type: ignore[arg-type]

    @property
    def requests(self) -> Requests:
        """All of them."""
        rows = self.rows
        return make_requests(
            rows["queued_ts"].to_numpy(),
            rows["input_toks"].to_numpy(),
            rows["output_toks"].to_numpy(),
        )

    @property
    def server(self) -> Server:
        """What its meta.json says."""
        return Server(
            model=self.meta["model"], gpu=GPU_RUNS[self.name], gpus=1.0, tensor_parallel=1
        )

    def configuration(self, num_gpu_blocks: int | None) -> SchedulerConfiguration:
        """Its settings with so many KV blocks."""
        said = self.meta["engine_kwargs"]
        return SchedulerConfiguration(
            said["max_num_seqs"],
            said["max_num_batched_tokens"],
            num_gpu_blocks=num_gpu_blocks,
            max_model_len=said["max_model_len"],
        )


@cache
def gpu_run(shared_data: Path, name: str) -> GpuRun:
    folder = shared_data / "gpu-runs" / name
    with gzip.open(folder / "requests.jsonl.gz") as lines:
        rows = pl.DataFrame([json.loads(line) for line in lines]).sort("queued_ts")
    begin = rows["queued_ts"].min()
    rows = rows.with_columns((pl.col(name) - begin) for name in TIMES)
    ticks = pl.read_csv(folder / "timeseries.csv")
    late = _lateness(rows, ticks)
    meta = json.loads((folder / "meta.json").read_text())
    return GpuRun(name, meta, rows, ticks.with_columns(pl.col("t") - late))


def _lateness(rows: pl.DataFrame, ticks: pl.DataFrame) -> float:
    """Seconds from the engine's clock to the ticks': where their count of requests agrees best."""
    queued, last = rows["queued_ts"].to_numpy(), rows["last_token_ts"].to_numpy()
    t, said = ticks["t"].to_numpy(), (ticks["running"] + ticks["waiting"]).to_numpy()
    tried = np.arange(-1.0, 1.01, 0.05)
    off = []
    for late in tried:
        at = (t - late)[:, None]
        inside = ((queued <= at) & (last > at)).sum(axis=1)
        off.append(np.abs(inside - said).mean())
    return float(tried[int(np.argmin(off))])


def first_half(run: GpuRun, chunk_seconds: int = 8) -> Observed:
    """What was known at half time: arrivals and lengths, and per second what the engine said.

    The recording holds no interval between tokens and no forward passes.
    """
    late = 1.0 - float(run.ticks["t"][0])
    edges = np.arange(0.0, run.half + late, chunk_seconds) - late
    edges[0] = 0.0
    first, queued = run.rows["first_token_ts"].to_numpy(), run.rows["queued_ts"].to_numpy()
    t = run.ticks["t"].to_numpy()
    made = []
    for start, end in itertools.pairwise(edges):
        tick = run.ticks.filter((t > start + 0.01) & (t <= end + 0.01))
        came = (first > start) & (first <= end)
        kv = float(tick["kv_cache_pct"].mean()) / 100  # type: ignore[arg-type]
        made.append(
            {
                "start_seconds": start,
                "end_seconds": end,
                "generation_tokens_per_second": tick["gen_throughput"].sum() / (end - start),
                "ttft_seconds": float((first - queued)[came].mean()) if came.any() else None,
                "running_requests": tick["running"].mean(),
                "waiting_requests": tick["waiting"].mean(),
                "kv_cache_usage_ratio": kv or None,
            }
        )
    chunks = pl.DataFrame(made, schema=CHUNK_SCHEMA)
    arrived = queued < edges[-1]
    return Observed(
        start=AT,
        seconds=float(edges[-1]),
        requests=run.requests.take(arrived),
        source="request log",
        chunks=chunks,
        busy_windows=int(edges[-1] // 60) + 1,
        saturated=float((chunks["waiting_requests"] > 0.5).mean()) > 0.5,  # type: ignore[arg-type]
    )


# --- a real server on a CPU


def cpu_server(max_num_seqs: int) -> Server:
    """run_cap and run_main: flags as their READMEs say; no datasheet knows the model or a CPU."""

    def said(value: int) -> Setting:
        return Setting(value, "arguments")

    return Server(
        serving=Serving(
            max_num_seqs=said(max_num_seqs),
            max_num_batched_tokens=said(1024),
            max_model_len=said(8192),
        ),
        gpu="cpu",
        model="tiny-llama",
        num_gpu_blocks=8193,
        block_size=32,
        prefix_caching=True,
    )


@cache
def phases(folder: Path) -> dict[str, tuple[float, float]]:
    """Phase → unix seconds of its start and end."""
    told = json.loads((folder / "phases.json").read_text())["phases"]
    return {phase["name"]: (phase["start"], phase["end"]) for phase in told}


@cache
def rows_between(folder: Path, start: float, end: float) -> pl.DataFrame:
    """The whole minutes in a stretch."""
    source = open_recording(folder / "scrapes.jsonl.gz", instance="host:8000")
    first = floor_minute(datetime.fromtimestamp(start + 59.999, UTC))
    last = floor_minute(datetime.fromtimestamp(end, UTC))
    collected = source.collect(first - timedelta(minutes=1), last)
    plan = plan_from(config=None)
    serving = plan.frames(plan.assign(dict(collected.targets), {})).serving
    rows = rows_of_scrapes(collected.scrapes, serving, first - timedelta(minutes=1), last)
    return minutes(evidence_table(rows, minute_grid(serving, first, last), serving=serving))


@dataclass(frozen=True)
class Seen:
    """What a stretch was like; seconds, per second."""

    itl: float
    steps: float
    ttft: float
    running: float


def seen_in(rows: pl.DataFrame) -> Seen:
    """From the counters."""

    def total(name: str) -> float:
        return float(rows[name].sum())

    return Seen(
        total("itl_seconds_sum") / total("itl_seconds_count"),
        total("forward_passes") / total("duration_seconds"),
        total("ttft_seconds_sum") / total("ttft_seconds_count"),
        float(rows["running_requests"].mean()),  # type: ignore[arg-type]
    )
