"""Minutes of lengths from real requests: Azure's and ServeGen's, spread over servers, no engine.

A request counts in the minute in which it arrives. What is changed is changed per request, not
per bucket, so that the tests know more than the detector does.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np
import polars as pl

from driftwatch.detect.lengths.columns import Memory, columns
from driftwatch.detect.settings import DetectSettings
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.traffic import PoolTraffic
from driftwatch.signals.minutes import MINUTE_SCHEMA

START = datetime(2026, 11, 9, tzinfo=UTC)  # a Monday
VLLM_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, np.inf)
SIGNALS = ("prompt_tokens", "generation_tokens")
# minute of each request, its server, its lengths [requests, signals] → the lengths
Change = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


@lru_cache(maxsize=8)
def requests_of(source: str, servers: int, days: float, per_server: float, seed: int) -> np.ndarray:
    """Minute, server, prompt, generation of every request."""
    scenario = Scenario.model_validate(
        {
            "name": "lengths",
            "title": "healthy",
            "duration": f"{int(days * 24)}h",
            "long": True,
            "start": START.isoformat(),
            "pool": {"name": "chat", "replicas": servers},
            "traffic": {
                "source": source,
                "requests_per_second": per_server * servers,
                "season": {"peak_to_trough": 3.0, "weekend_ratio": 0.6},
            },
            "truth": {"effects": []},
        }
    )
    traffic, found = PoolTraffic.of(scenario, seed), []
    for server in range(servers):
        for hour in range(0, int(days * 24), 24):
            until = min(hour + 24, int(days * 24))
            sent = traffic.requests(server, hour * 3600.0, until * 3600.0)
            minute = (sent.arrival_seconds // 60).astype(int)
            found.append(
                np.stack(
                    [
                        minute,
                        np.full(len(minute), server),
                        sent.prompt_tokens,
                        sent.generation_tokens,
                    ],
                    axis=1,
                )
            )
    return np.concatenate(found)


def minutes_of(
    source: str = "azure_conv",
    servers: int = 4,
    days: float = 1.0,
    per_server: float = 2.0,
    seed: int = 5,
    change: Change | None = None,
    edges: tuple[float, ...] = VLLM_EDGES,
) -> pl.DataFrame:
    """MINUTE_SCHEMA rows by instance and end; what is not about lengths is NULL."""
    sent = requests_of(source, servers, days, per_server, seed)
    minute, server, lengths = sent[:, 0], sent[:, 1], sent[:, 2:].astype(float)
    if change is not None:
        lengths = np.maximum(1.0, np.rint(change(minute, server, lengths)))
    total, cells = int(days * 1440), len(edges)
    made: dict[str, object] = {}
    row = server * total + minute
    for at, name in enumerate(SIGNALS):
        cell = np.searchsorted(np.array(edges), lengths[:, at])
        counts = np.bincount(row * cells + cell, minlength=servers * total * cells)
        made[f"{name}_buckets"] = np.cumsum(counts.reshape(-1, cells), axis=1).astype(float)
        made[f"{name}_sum"] = np.bincount(row, lengths[:, at], minlength=servers * total)
        made[f"{name}_count"] = np.bincount(row, minlength=servers * total).astype(float)
        made[f"{name}_edges"] = np.tile(np.array(edges, dtype=float), (servers * total, 1))
    ends = [START + timedelta(minutes=i + 1) for i in range(total)]
    frame = pl.DataFrame(
        {
            "instance": np.repeat([f"s{i}" for i in range(servers)], total),
            "engine": "0",
            "pool": "chat",
            "end": ends * servers,
            "scrapes": 2.0,
            "duration_seconds": 60.0,
            "running_requests": 5.0,
            **made,
        }
    )
    missing = [name for name in MINUTE_SCHEMA if name not in frame.columns]
    frame = frame.with_columns(pl.lit(None).alias(name) for name in missing)
    return frame.select(
        pl.col(name).arr.to_list()
        if isinstance(frame.schema[name], pl.Array)
        else pl.col(name).cast(dtype)
        for name, dtype in MINUTE_SCHEMA.items()
    ).cast(pl.Schema(MINUTE_SCHEMA))


def told(
    minutes: pl.DataFrame,
    memory: Memory | None = None,
    every: int | None = None,
    settings: DetectSettings | None = None,
) -> tuple[pl.DataFrame, Memory]:
    """The columns beside instance and end, minutes given in calls of ``every`` of them."""
    memory, out = memory or Memory(), []
    settings = settings or DetectSettings()
    first, last = minutes["end"].min(), minutes["end"].max()
    step = timedelta(minutes=every or 10**6)
    while first <= last:
        part = minutes.filter((pl.col("end") >= first) & (pl.col("end") < first + step))
        found, memory = columns(part, memory, settings)
        out.append(part.select("instance", "end").hstack(found))
        first += step
    return pl.concat(out).sort("instance", "end"), memory


def between(frame: pl.DataFrame, since: int, until: int) -> pl.DataFrame:
    """Rows whose minute (from the start) is in [since, until)."""
    low, high = (START + timedelta(minutes=m + 1) for m in (since, until))
    return frame.filter((pl.col("end") >= low) & (pl.col("end") < high))


def scaled(server: int | None, since: int, until: int, signal: int, factor: float) -> Change:
    """Lengths of one server (None: of all) times a factor for a while."""

    def change(minute: np.ndarray, of: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        on = (minute >= since) & (minute < until)
        if server is not None:
            on &= of == server
        lengths = lengths.copy()
        lengths[on, signal] *= factor
        return lengths

    return change
