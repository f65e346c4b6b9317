"""What is compared: figures of a minute as a numerator over a denominator, which add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from driftwatch.arrays import Floats
from driftwatch.model import Slo
from driftwatch.signals.histograms import share_within

Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, slots=True)
class Figure:
    """What is compared: an evidence column or a share in target."""

    name: str
    unit: str  # base unit, "1" for ratios
    better: Better  # which way is good
    words: str  # what a text calls it


IN_TARGET = "in_target_ratio"
FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(IN_TARGET, "1", "higher", "requests in target"),
        Figure("ttft_in_target_ratio", "1", "higher", "requests in the TTFT target"),
        Figure("tpot_in_target_ratio", "1", "higher", "requests in the TPOT target"),
        Figure("ttft_seconds_mean", "seconds", "lower", "TTFT mean"),
        Figure("itl_seconds_mean", "seconds", "lower", "ITL mean"),
        Figure("e2e_seconds_mean", "seconds", "lower", "time of a request"),
        Figure("batch_assembly_wait_seconds", "seconds", "lower", "queue wait"),
        Figure("generation_tokens_per_second", "tokens/s", "higher", "tokens/s"),
        Figure("requests_per_forward_pass", "requests", "neither", "requests a step"),
        Figure("running_requests", "requests", "neither", "running requests"),
        Figure("kv_cache_usage_ratio", "1", "neither", "KV cache"),
        Figure("preemptions_per_second", "1/s", "lower", "preemptions"),
    )
}
WORDS: Mapping[str, str] = {name: figure.words for name, figure in FIGURES.items()}
SHARES = (IN_TARGET, "ttft_in_target_ratio", "tpot_in_target_ratio")

# figure → numerator and denominator, columns of a minute
_SECONDS = pl.col("duration_seconds")
_RATIOS: dict[str, tuple[pl.Expr, pl.Expr]] = {
    "ttft_seconds_mean": (pl.col("ttft_seconds_sum"), pl.col("ttft_seconds_count")),
    "itl_seconds_mean": (pl.col("itl_seconds_sum"), pl.col("itl_seconds_count")),
    "e2e_seconds_mean": (pl.col("e2e_seconds_sum"), pl.col("e2e_seconds_count")),
    "batch_assembly_wait_seconds": (pl.col("queue_seconds_sum"), pl.col("queue_seconds_count")),
    "generation_tokens_per_second": (pl.col("generation_tokens_total"), _SECONDS),
    "requests_per_forward_pass": (
        pl.col("itl_seconds_count") + pl.col("ttft_seconds_count"),
        pl.col("forward_passes"),
    ),
    "running_requests": (pl.col("running_requests") * _SECONDS, _SECONDS),
    "kv_cache_usage_ratio": (pl.col("kv_cache_usage_ratio") * _SECONDS, _SECONDS),
    "preemptions_per_second": (pl.col("preemptions_total"), _SECONDS),
}


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """One figure of every minute."""

    numerator: Floats  # [minutes]; 0 where the figure is unknown
    denominator: Floats  # [minutes]; 0 there too

    @property
    def is_known(self) -> bool:
        """Any minute knows it."""
        return bool(self.denominator.sum() > 0)


def parts(minutes: pl.DataFrame, slo: Slo | None) -> dict[str, Parts]:
    """Figure → its parts, those of no minute left out.

    A share of requests in target counts, where the target lies inside a bucket, those below the
    bucket: the same bound on both sides of a comparison. ``slo``: latency targets; None = no
    shares.
    """
    by_figure: dict[str, Parts] = {}
    for name, (numerator, denominator) in _RATIOS.items():
        frame = minutes.select(n=numerator.cast(pl.Float64), d=denominator.cast(pl.Float64))
        unknown = pl.col("n").is_null() | pl.col("d").is_null()
        frame = frame.select(pl.when(unknown).then(0.0).otherwise(pl.col(c)).alias(c) for c in "nd")
        by_figure[name] = Parts(frame["n"].to_numpy(), frame["d"].to_numpy())
    for short, target in _targets(slo):
        shares = share_within(
            minutes[f"{short}_seconds_buckets"],
            minutes[f"{short}_seconds_edges"],
            pl.Series([target] * len(minutes), dtype=pl.Float64),
        )["lower"].to_numpy()
        counts = minutes[f"{short}_seconds_count"].fill_null(0.0).to_numpy()
        counted = ~np.isnan(shares) & (counts > 0)
        by_figure[f"{short}_in_target_ratio"] = Parts(
            np.where(counted, shares * counts, 0.0), np.where(counted, counts, 0.0)
        )
    return {name: one for name, one in by_figure.items() if one.is_known}


def log_densities(minutes: pl.DataFrame, slo: Slo | None) -> dict[str, float]:
    """Share in target → by how much it falls where every time is longer by a factor of e^h, over h.

    The share of observations in the bucket below the target over the logarithm of its width.
    """
    by_name: dict[str, float] = {}
    for short, target in _targets(slo):
        rows = minutes.filter(pl.col(f"{short}_seconds_buckets").is_not_null())
        edges = rows[f"{short}_seconds_edges"]
        if rows.is_empty() or edges.n_unique() != 1:
            continue
        stacked = np.stack([np.asarray(one, float) for one in rows[f"{short}_seconds_buckets"]])
        total, finite = stacked.sum(0), np.asarray(edges[0], float)
        at = int(np.searchsorted(finite, target * (1 + 1e-12))) - 1
        if at < 1 or total[-1] <= 0:
            continue
        inside = (total[at] - total[at - 1]) / total[-1]
        by_name[f"{short}_in_target_ratio"] = float(inside / np.log(finite[at] / finite[at - 1]))
    return by_name


def _targets(slo: Slo | None) -> list[tuple[str, float]]:
    if slo is None:
        return []
    both = (("ttft", slo.ttft_seconds), ("tpot", slo.tpot_seconds))
    return [(short, target) for short, target in both if target is not None]


def inside_bucket(minutes: pl.DataFrame, slo: Slo | None) -> list[str]:
    """Targets that are no bucket edge, in words: shares are lower bounds there."""
    notes = []
    for short, target in _targets(slo):
        edges = minutes[f"{short}_seconds_edges"].drop_nulls()
        if len(edges) and not any(abs(edge - target) < 1e-12 for edge in edges[-1]):
            notes.append(
                f"the {short.upper()} target {target:g} s lies inside a bucket: "
                "shares count what is surely within it"
            )
    return notes
