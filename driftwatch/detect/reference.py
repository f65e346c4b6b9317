"""The values of baselines ("before"), and the ratios of windows to them.

A reference row per target holds its normal values: measured in a baseline window, or declared in
the configuration (``tuned_for``). Measured values win over declared ones. Counters of a window's
minutes add up, so rates, means and histograms are those of the whole window. Where one counter of a
ratio is unknown, the minute counts for neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY, TIME
from driftwatch.detect.lengths import LENGTHS, MIN_REQUESTS, SWINGS, swings
from driftwatch.signals.histograms import by_layout, quantile


def _over(numerator: pl.Expr, denominator: pl.Expr) -> pl.Expr:
    """Sum over sum of the minutes that know both; NULL where the denominator is 0."""
    both = numerator.is_not_null() & denominator.is_not_null()
    below = denominator.filter(both).sum()
    return pl.when(below > 0).then(numerator.filter(both).sum() / below)


def _mean_of(histogram: str) -> pl.Expr:
    return _over(pl.col(f"{histogram}_sum"), pl.col(f"{histogram}_count"))


def _level(gauge: str) -> pl.Expr:
    """Mean of a gauge: each minute that knows it counts by its scrapes."""
    known = pl.when(pl.col(gauge).is_not_null()).then(pl.col("scrapes"))
    return _over(pl.col(gauge) * pl.col("scrapes"), known)


_PASSES, _SECONDS = pl.col("forward_passes"), pl.col("duration_seconds")
_FIRST, _LATER = pl.col("ttft_seconds_count"), pl.col("itl_seconds_count")
_GENERATED = pl.col("generation_tokens_total")
# Evidence columns whose value a baseline has, computed from its minutes.
MEASURED: Mapping[str, pl.Expr] = {
    "prompt_tokens_mean": _mean_of("prompt_tokens"),
    "generation_tokens_mean": _mean_of("generation_tokens"),
    "finished_requests": pl.when(pl.col("prompt_tokens_count").count() > 0).then(
        pl.col("prompt_tokens_count").sum()
    ),
    "requests_per_second": _over(pl.col("finished_requests_total"), _SECONDS),
    "generation_tokens_per_second": _over(_GENERATED, _SECONDS),
    "tokens_per_second_per_gpu": _over(_GENERATED, _SECONDS) / _level("gpu_count"),
    "effective_batch_size": _over(pl.col("itl_seconds_sum"), _SECONDS),
    "requests_per_forward_pass": _over(_FIRST + _LATER, _PASSES),
    "tokens_per_forward_pass": _over(pl.col("iteration_tokens_sum"), _PASSES),
    "batch_assembly_wait_seconds": _mean_of("queue_seconds"),
    "ttft_10m_seconds": _mean_of("ttft_seconds"),
    "itl_seconds_mean": _mean_of("itl_seconds"),
    "prefix_cache_hit_ratio": _over(
        pl.col("prefix_cache_hits_total"), pl.col("prefix_cache_queries_total")
    ),
    "spec_decode_acceptance_ratio": _over(
        pl.col("spec_decode_accepted_tokens_total"), pl.col("spec_decode_draft_tokens_total")
    ),
    "tokens_per_output": _over(_GENERATED - _FIRST, _LATER),
    # of the requests that began
    "given_up_ratio": _over(pl.col("given_up_requests"), _FIRST).clip(0.0),
    **{
        name: _level(name)
        for name in (
            "running_requests",
            "kv_cache_usage_ratio",
            "gpu_count",
            "gpu_utilization_ratio",
            "gpu_power_watts",
            "gpu_sm_clock_hertz",
        )
    },
}
# The 10 % quantile of its 10-min rates.
LOW_RATE = "requests_per_second_low"
# Histograms whose 95th percentile is kept: latency targets follow from it where none is set.
_LATENCIES = ("ttft_seconds", "tpot_seconds")
_P95 = tuple(f"{name}_p95" for name in _LATENCIES)
# Kept histograms: cumulative counts by edge.
HISTOGRAMS = tuple(f"{name}_{part}" for name in LENGTHS for part in ("buckets", "edges"))

REFERENCE_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "kind": pl.String,  # baseline | tuned_for
    "since": TIME,
    "until": TIME,
    **{f"reference_{c}": pl.Float64 for c in (*MEASURED, LOW_RATE, *_P95)},
    **{f"reference_{c}": pl.List(pl.Float64) for c in (*HISTOGRAMS, *SWINGS)},
}
# The part of it that evidence rows carry.
REFERENCE_COLUMNS = tuple(c for c in REFERENCE_SCHEMA if c.startswith("reference_"))
# Values that take MIN_REQUESTS requests.
_NEED_REQUESTS = (*(f"{name}_mean" for name in LENGTHS), *_P95, *HISTOGRAMS)

# ratio column → the evidence column, and the value of the baseline it is divided by
RATIOS: Mapping[str, tuple[str, str]] = {
    "requests_per_second_ratio": ("requests_per_second", "requests_per_second"),
    "requests_per_second_low_ratio": ("requests_per_second", LOW_RATE),
    "tokens_per_second_per_gpu_ratio": ("tokens_per_second_per_gpu", "tokens_per_second_per_gpu"),
    "gpu_sm_clock_ratio": ("gpu_sm_clock_hertz", "gpu_sm_clock_hertz"),
}


def no_reference() -> pl.DataFrame:
    """A reference table without rows."""
    return pl.DataFrame(schema=REFERENCE_SCHEMA)


def declared(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """``tuned_for`` declarations → reference rows.

    ``rows``: instance, engine, reference_prompt_tokens_mean, reference_generation_tokens_mean.
    """
    return pl.DataFrame(
        [{"kind": "tuned_for", **row} for row in rows], schema=REFERENCE_SCHEMA, orient="row"
    )


def combined(*references: pl.DataFrame) -> pl.DataFrame:
    """One reference row per target, from the first table that has one.

    ``references``: :data:`REFERENCE_SCHEMA` each, in order of precedence.
    """
    return pl.concat(references).unique(KEY, keep="first", maintain_order=True)


def baseline_of_minutes(minutes: pl.DataFrame, pool: str | None = None) -> pl.DataFrame:
    """Minutes of a baseline → one reference row per target, or one for all of a ``pool``.

    A pool's rates are per target, and its swings those of the target that swings most. Of several
    bucket layouts the one with most requests counts. Lengths take MIN_REQUESTS requests.
    """
    scraped = minutes.filter(pl.col("scrapes") > 0)
    groups = scraped.group_by(KEY, maintain_order=True) if pool is None else [((pool, ""), scraped)]
    rows = [
        {"instance": instance, "engine": engine, "kind": "baseline", **_measured(own)}
        for (instance, engine), own in groups
        if len(own)
    ]
    return pl.DataFrame(rows, schema=REFERENCE_SCHEMA, orient="row")


def _measured(minutes: pl.DataFrame) -> dict[str, Any]:
    """One row, without its names."""
    since, until = pl.col("end").min() - timedelta(minutes=1), pl.col("end").max()
    span = minutes.select(since=since, until=until).row(0, named=True)
    values = minutes.select(**MEASURED).row(0, named=True) | swings(minutes)
    values[LOW_RATE] = _low_rate(minutes)
    for name in LENGTHS:
        values[f"{name}_buckets"], values[f"{name}_edges"] = _histogram(minutes, name)
    for name in _LATENCIES:
        series = (pl.Series([one], dtype=pl.List(pl.Float64)) for one in _histogram(minutes, name))
        buckets, edges = series
        values[f"{name}_p95"] = quantile(buckets, edges, 0.95).value[0]
    if (values["finished_requests"] or 0.0) < MIN_REQUESTS:
        values |= dict.fromkeys(_NEED_REQUESTS)
    return span | {f"reference_{name}": value for name, value in values.items()}


def _low_rate(minutes: pl.DataFrame) -> float | None:
    """Lowest tenth of the requests/s over stretches of 10 min with at least 5 minutes."""
    stretch = (pl.col("end") - timedelta(minutes=1)).dt.truncate("10m")
    rates = minutes.group_by(stretch).agg(MEASURED["requests_per_second"].alias("rate"), pl.len())
    return rates.filter(pl.col("len") >= 5)["rate"].quantile(0.1, "linear")


def _histogram(minutes: pl.DataFrame, name: str) -> tuple[list[float] | None, list[float] | None]:
    """Summed counts and edges of the layout with most requests; of two the finer one."""
    layouts = by_layout(minutes[f"{name}_buckets"], minutes[f"{name}_edges"])
    summed = [(counts.sum(axis=0).tolist(), le.tolist()) for _, le, counts in layouts]
    return max(summed, key=lambda one: (one[0][-1], len(one[1])), default=(None, None))


def with_reference(
    rows: pl.DataFrame, ten_minutes: pl.DataFrame, reference: pl.DataFrame
) -> pl.DataFrame:
    """Add the ratio columns and the ``reference_*`` columns they were made from.

    ``ten_minutes``: totals of the ten minutes that end with each row.
    """
    names = {name: f"reference_{name}" for name in ("kind", "since", "until")}
    joined = rows.join(reference.rename(names), on=KEY, how="left", maintain_order="left")
    lengths = {
        f"{name}_mean_ratio": _recent_mean(rows, ten_minutes, name)
        / joined[f"reference_{name}_mean"]
        for name in LENGTHS
    }
    ratios = {
        ratio: pl.when(pl.col(f"reference_{was}") > 0).then(
            pl.col(column) / pl.col(f"reference_{was}")
        )
        for ratio, (column, was) in RATIOS.items()
    }
    return joined.with_columns(
        **lengths, **ratios, lost_prefix_hits_prefill_ratio=lost_hits_prefill(MIN_REQUESTS)
    )


def _recent_mean(rows: pl.DataFrame, ten_minutes: pl.DataFrame, name: str) -> pl.Series:
    """Mean length of each window; a window below ten minutes takes the ten that end with it.

    Unknown with fewer than MIN_REQUESTS requests, or where the window has no usable scrape.
    """
    parts = [f"{name}_sum", f"{name}_count"]
    is_long = rows.select(pl.col("end") - pl.col("start") >= pl.duration(minutes=10)).to_series()
    total, count = (rows[part].zip_with(is_long, ten_minutes[part]) for part in parts)
    known = (count >= MIN_REQUESTS) & (rows["scrapes"] > 0)
    return pl.select(pl.when(known).then(total / count)).to_series()


def lost_hits_prefill(at_least: float) -> pl.Expr:
    """``lost_prefix_hits_prefill_ratio``; unknown with fewer than ``at_least`` first tokens."""
    first, seconds = pl.col("ttft_seconds_count"), pl.col("duration_seconds")
    longer = pl.col("prompt_tokens_total") / first / pl.col("reference_prompt_tokens_mean")
    # a server's own last days have the hits, but not the lengths
    is_measured = pl.col("reference_kind") == "baseline"
    longer = pl.when(is_measured).then(longer).otherwise(1.0).clip(lower_bound=1.0)
    expected = pl.col("reference_prefix_cache_hit_ratio") / longer
    ratio = (1 - pl.col("prefix_cache_hit_ratio")) / (1 - expected)
    return pl.when((first >= at_least) & (seconds > 0) & ratio.is_finite()).then(ratio)
