"""Latency by batch: rows by requests a step in powers of two, their histograms added. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from driftwatch.arrays import Floats
from driftwatch.signals.histograms import quantile

QUANTILES = (0.5, 0.95, 0.99)
HISTOGRAMS = ("itl_seconds", "ttft_seconds")
_LISTS = pl.List(pl.Float64)
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
    powers = busy.sort("power").group_by("power", maintain_order=True)
    groups = [(2.0 ** float(str(power)), own) for (power,), own in powers]
    latencies = [_latencies([own for _, own in groups], name) for name in HISTOGRAMS]
    bands = []
    for (low, own), *of_band in zip(groups, *latencies, strict=True):
        batch = float(own["outputs"].sum()) / float(own["forward_passes"].sum())
        both = tuple(one for latency in of_band for one in latency)
        bands.append(Band(low, 2 * low, batch, float(own["seconds"].sum()), both))
    return bands


def _latencies(groups: Sequence[pl.DataFrame], name: str) -> list[list[Latency]]:
    """Quantiles of each group; of one with too few counts none."""
    wholes = [_added(rows, name) for rows in groups]
    counts, edges = (
        pl.Series([None if one is None else one[part] for one in wholes], dtype=_LISTS)
        for part in (0, 1)
    )
    out: list[list[Latency]] = [[] for _ in groups]
    for q in QUANTILES:
        estimates = quantile(counts, edges, q)
        for latencies, value, low, high in zip(
            out, estimates.value, estimates.lower, estimates.upper, strict=True
        ):
            if value is not None:
                latencies.append(Latency(name, q, value, low, high))
    return out


def _added(rows: pl.DataFrame, name: str) -> tuple[list[float], list[float]] | None:
    """Counts and edges of all rows, of several layouts the one with the most; None: too few."""
    sums: dict[tuple[float, ...], Floats] = defaultdict(lambda: np.zeros(1))
    for counts, edges in rows.select(f"{name}_buckets", f"{name}_edges").iter_rows():
        if counts and edges and len(counts) == len(edges):
            sums[tuple(edges)] = sums[tuple(edges)] + np.asarray(counts)
    if not sums:
        return None
    edges, added = max(sums.items(), key=lambda pair: (pair[1][-1], pair[0]))
    return None if added[-1] < _LEAST else (list(added), list(edges))
