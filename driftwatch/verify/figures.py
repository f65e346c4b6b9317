"""Figures to compare: each minute has a numerator and a denominator, which add up."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from driftwatch.arrays import Floats
from driftwatch.model import Slo
from driftwatch.signals.histograms import share_within


class Figure(NamedTuple):
    """A figure to compare: an evidence column or the share of requests in target."""

    name: str
    unit: str  # base unit, "1" for ratios
    better: Literal["higher", "lower", "neither"]  # which way is good
    words: str  # its name in a text
    times: str = ""  # stem of its columns ``_sum`` and ``_count``; empty = it is no mean of times
    forecast: str = ""  # its name in a forecast (driftwatch.recommend.advice.Candidate)


IN_TARGET, TTFT, ITL = "in_target_ratio", "ttft_seconds_mean", "itl_seconds_mean"
E2E, WAIT = "e2e_seconds_mean", "batch_assembly_wait_seconds"
TOKENS, RUNNING = "generation_tokens_per_second", "running_requests"
FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(IN_TARGET, "1", "higher", "requests in target", forecast=IN_TARGET),
        Figure(TTFT, "seconds", "lower", "TTFT mean", "ttft_seconds", "ttft_seconds"),
        Figure(ITL, "seconds", "lower", "ITL mean", "itl_seconds", "itl_seconds"),
        Figure(E2E, "seconds", "lower", "time of a request", "e2e_seconds"),
        Figure(WAIT, "seconds", "lower", "queue wait", "queue_seconds"),
        Figure(TOKENS, "tokens/s", "higher", "tokens/s", forecast=TOKENS),
        Figure(RUNNING, "requests", "neither", "running requests", forecast=RUNNING),
    )
}
WORDS = {name: figure.words for name, figure in FIGURES.items()}


def parts(minutes: pl.DataFrame, slo: Slo | None) -> dict[str, Floats]:
    """Figure → numerator and denominator of every minute, [2, minutes]; 0 and 0 where unknown.

    Figures that no minute knows are left out. A request in target meets every target, so a minute
    counts as many requests as meet the strictest one. Where a target lies inside a bucket, only
    requests below the bucket count: the same bound on both sides of a comparison.

    ``slo``: latency targets; None = no shares.
    """
    one = minutes["duration_seconds"]
    pairs = {RUNNING: (minutes["running_requests"] * one, one)}
    pairs[TOKENS] = minutes["generation_tokens_total"], one
    for name, figure in FIGURES.items():
        if figure.times:
            pairs[name] = minutes[f"{figure.times}_sum"], minutes[f"{figure.times}_count"]
    shares = []
    for short in ("ttft", "tpot"):
        target = None if slo is None else getattr(slo, f"{short}_seconds")
        if target is not None:
            buckets, edges = (minutes[f"{short}_seconds_{part}"] for part in ("buckets", "edges"))
            wanted = pl.Series([target] * len(minutes), dtype=pl.Float64)
            shares.append(share_within(buckets, edges, wanted)["lower"].cast(pl.Float64).to_numpy())
    if shares:
        count = minutes["ttft_seconds_count"]
        pairs[IN_TARGET] = pl.Series(np.fmin.reduce(shares)).fill_nan(None) * count, count
    found = {}
    for name, (top, bottom) in pairs.items():
        both = np.stack([top.cast(pl.Float64).to_numpy(), bottom.cast(pl.Float64).to_numpy()])
        found[name] = np.where(np.isnan(both).any(axis=0), 0.0, both)
    return {name: both for name, both in found.items() if both[1].sum() > 0}
