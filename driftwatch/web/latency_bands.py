"""Latency by batch: rows by requests a step in powers of two, their histograms added. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from driftwatch.arrays import Floats
from driftwatch.signals.histograms import quantile

QUANTILES = (0.5, 0.95, 0.99)
HISTOGRAMS = ("itl_seconds", "ttft_seconds")
_LEAST = 20  # fewer say nothing about their 95th percentile


class Latency(NamedTuple):
    """One quantile of a latency, with the bucket that it lies in."""

    name: str  # itl_seconds or ttft_seconds
    q: float
    seconds: float
    lower: float
    upper: float | None  # None = the bucket has no end


class Band(NamedTuple):
    """Rows of about the same batch."""

    low: float  # requests a step
    high: float
    mean: float
    seconds: float  # that they last
    latencies: tuple[Latency, ...]  # of those that were counted


def latency_bands(rows: pl.DataFrame) -> list[Band]:
    """The smallest batch first; rows without a forward pass are in none.

    ``rows``: ``seconds``, ``forward_passes``, ``itl_seconds_count``, ``ttft_seconds_count``, and
    the two histograms.
    """
    outputs = pl.col("itl_seconds_count") + pl.col("ttft_seconds_count")
    busy = rows.filter((pl.col("forward_passes") > 0) & (outputs > 0)).with_columns(
        outputs=outputs,
        power=(outputs / pl.col("forward_passes")).clip(1.0).log(2.0).floor(),
    )
    bands = []
    for (power,), own in busy.sort("power").group_by("power", maintain_order=True):
        low = 2.0 ** float(str(power))
        batch = float(own["outputs"].sum()) / float(own["forward_passes"].sum())
        latencies = tuple(one for name in HISTOGRAMS for one in _latencies(own, name))
        bands.append(Band(low, 2 * low, batch, float(own["seconds"].sum()), latencies))
    return bands


def _latencies(rows: pl.DataFrame, name: str) -> list[Latency]:
    whole = _added(rows, name)
    if whole is None or whole["counts"][0][-1] < _LEAST:
        return []
    out = []
    for q in QUANTILES:
        one = quantile(whole["counts"], whole["edges"], q)
        if one.value[0] is not None:
            out.append(Latency(name, q, one.value[0], one.lower[0], one.upper[0]))
    return out


def _added(rows: pl.DataFrame, name: str) -> dict[str, Any] | None:
    """The histogram of all rows; of several layouts the one with the most counts."""
    sums: dict[tuple[float, ...], Floats] = defaultdict(lambda: np.zeros(1))
    for counts, edges in rows.select(f"{name}_buckets", f"{name}_edges").iter_rows():
        if counts and edges and len(counts) == len(edges):
            sums[tuple(edges)] = sums[tuple(edges)] + np.asarray(counts)
    if not sums:
        return None
    edges, added = max(sums.items(), key=lambda pair: (pair[1][-1], pair[0]))
    lists = {"counts": list(added), "edges": list(edges)}
    return {name: pl.Series([one], dtype=pl.List(pl.Float64)) for name, one in lists.items()}
