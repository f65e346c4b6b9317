"""A reference row from stored minutes: the measurements of a baseline window.

Counters of the minutes add up, so rates, means and histograms are those of the whole window. Where
one counter of a ratio is unknown, the minute counts for neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.detect.lengths import MIN_REQUESTS, swings, widest
from driftwatch.detect.reference import (
    HISTOGRAMS,
    LATENCIES,
    LOW_RATE,
    P95,
    REFERENCE_SCHEMA,
)
from driftwatch.signals.histograms import quantile

_MINUTE = timedelta(minutes=1)


def baseline_of_minutes(minutes: pl.DataFrame, pool: str | None = None) -> pl.DataFrame:
    """Minutes of a baseline → one reference row per target, or one for all of a ``pool``.

    A pool has rates per target, and the swings of the target that swings most. Of several layouts
    of buckets the row has the one with most requests. It has no lengths of fewer than MIN_REQUESTS.
    """
    scraped = minutes.filter(pl.col("scrapes") > 0)
    swung = swings(scraped)
    if pool is not None:
        together = {"instance": pl.lit(pool), "engine": pl.lit("")}
        scraped = scraped.with_columns(**together)
        swung = widest(swung).with_columns(**together)
    rows = scraped.group_by(KEY, maintain_order=True).agg(
        kind=pl.lit("baseline"),
        since=pl.col("end").min() - _MINUTE,
        until=pl.col("end").max(),
        **{f"reference_{name}": value for name, value in _measured().items()},
    )
    for beside in (_low_rate(scraped), swung):
        rows = rows.join(beside, on=KEY, how="left", maintain_order="left")
    for name in ("prompt_tokens", "generation_tokens"):
        rows = rows.join(_histogram(scraped, name), on=KEY, how="left", maintain_order="left")
    for name in LATENCIES:
        histogram = _histogram(scraped, name)
        p95 = quantile(
            histogram[f"reference_{name}_buckets"], histogram[f"reference_{name}_edges"], 0.95
        )
        p95_column = p95.value.alias(f"reference_{name}_p95")
        rows = rows.join(
            histogram.select(*KEY).with_columns(p95_column),
            on=KEY,
            how="left",
            maintain_order="left",
        )
    few = pl.col("reference_finished_requests") < MIN_REQUESTS
    return (
        rows.with_columns(
            pl.when(~few).then(pl.col(f"reference_{c}")).alias(f"reference_{c}")
            for c in (*P95, *HISTOGRAMS)
        )
        .select([*REFERENCE_SCHEMA])
        .cast(pl.Schema(REFERENCE_SCHEMA))
    )


def totals(names: Iterable[str]) -> list[pl.Expr]:
    """Measures of a baseline by name, over all minutes of a group."""
    measured = _measured()
    return [measured[name].alias(name) for name in names]


def _measured() -> dict[str, pl.Expr]:
    """Measures of a baseline over all its minutes, by name."""
    outputs = pl.col("itl_seconds_count") + pl.col("ttft_seconds_count")
    computed = pl.coalesce("prompt_tokens_computed_total", "prompt_tokens_total")
    passes, seconds = pl.col("forward_passes"), pl.col("duration_seconds")
    generated = _over(pl.col("generation_tokens_total"), seconds)
    finished = pl.when(pl.col("prompt_tokens_count").count() > 0).then(
        pl.col("prompt_tokens_count").sum()
    )
    enough = finished >= MIN_REQUESTS
    return {
        "prompt_tokens_mean": pl.when(enough).then(_mean_of("prompt_tokens")),
        "generation_tokens_mean": pl.when(enough).then(_mean_of("generation_tokens")),
        "finished_requests": finished,
        "requests_per_second": _over(pl.col("finished_requests_total"), seconds),
        "generation_tokens_per_second": generated,
        "tokens_per_second_per_gpu": generated / _level(pl.col("gpu_count")),
        "effective_batch_size": _over(pl.col("itl_seconds_sum"), seconds),
        "requests_per_forward_pass": _over(outputs, passes),
        "tokens_per_forward_pass": _over(pl.col("iteration_tokens_sum"), passes),
        "batch_assembly_wait_seconds": _mean_of("queue_seconds"),
        **{f"{h}_mean": _mean_of(h) for h in ("ttft_seconds", "itl_seconds")},
        "prefix_cache_hit_ratio": _over(
            pl.col("prefix_cache_hits_total"), pl.col("prefix_cache_queries_total")
        ),
        "spec_decode_acceptance_ratio": _over(
            pl.col("spec_decode_accepted_tokens_total"), pl.col("spec_decode_draft_tokens_total")
        ),
        "tokens_per_output": _over(
            pl.col("generation_tokens_total") - pl.col("ttft_seconds_count"),
            pl.col("itl_seconds_count"),
        ),
        **{name: _level(pl.col(name)) for name in _LEVELS},
        "first_tokens_ratio": _over(pl.col("ttft_seconds_count"), pl.col("itl_seconds_count")),
        "prefill_tokens_per_forward_pass": _over(computed, passes),
        "given_up_ratio": _over(pl.col("given_up_requests"), pl.col("ttft_seconds_count")).clip(
            0.0
        ),
        "kv_cache_used_tokens": _level(pl.col("kv_cache_usage_ratio") * pl.col("kv_cache_tokens")),
    }


def _low_rate(scraped: pl.DataFrame) -> pl.DataFrame:
    """Target → lowest tenth of its requests/s over stretches of 10 min with at least 5 minutes."""
    finished, seconds = pl.col("finished_requests_total"), pl.col("duration_seconds")
    stretch = (pl.col("end") - timedelta(minutes=1)).dt.truncate("10m")
    return (
        scraped.group_by(*KEY, stretch=stretch, maintain_order=True)
        .agg(rate=_over(finished, seconds), minutes=pl.len())
        .filter(pl.col("minutes") >= 5)
        .group_by(KEY, maintain_order=True)
        .agg(pl.col("rate").quantile(0.1, "linear").alias(f"reference_{LOW_RATE}"))
    )


_LEVELS = (
    "running_requests",
    "kv_cache_usage_ratio",
    "gpu_count",
    "gpu_utilization_ratio",
    "gpu_power_watts",
    "gpu_sm_clock_hertz",
)


def _over(numerator: pl.Expr, denominator: pl.Expr) -> pl.Expr:
    """Sum over sum of the minutes that know both; NULL where the denominator is 0."""
    both = numerator.is_not_null() & denominator.is_not_null()
    below = denominator.filter(both).sum()
    return pl.when(below > 0).then(numerator.filter(both).sum() / below)


def _mean_of(histogram: str) -> pl.Expr:
    return _over(pl.col(f"{histogram}_sum"), pl.col(f"{histogram}_count"))


def _level(gauge: pl.Expr) -> pl.Expr:
    """Mean over the scrapes of the minutes that know it."""
    return _over(gauge * pl.col("scrapes"), pl.when(gauge.is_not_null()).then(pl.col("scrapes")))


def _as_text(edges: pl.Expr) -> pl.Expr:
    return edges.cast(pl.List(pl.String)).list.join(",")


def _histogram(scraped: pl.DataFrame, name: str) -> pl.DataFrame:
    """Target → the summed histogram of the layout that holds most, as ``reference_*`` columns."""
    buckets, edges = f"{name}_buckets", f"{name}_edges"
    cells = (
        scraped.select(*KEY, buckets, edges)
        .filter(
            pl.col(buckets).is_not_null(),
            pl.col(edges).is_not_null(),
            pl.col(buckets).list.len() == pl.col(edges).list.len(),
            pl.col(buckets).list.len() > 0,
        )
        .with_columns(layout=_as_text(pl.col(edges)), cell=pl.int_ranges(pl.col(edges).list.len()))
        .explode(buckets, edges, "cell")
    )
    summed = (
        cells.group_by([*KEY, "layout", "cell"])
        .agg(pl.col(buckets).sum(), pl.col(edges).first())
        .sort([*KEY, "layout", "cell"])
        .group_by([*KEY, "layout"], maintain_order=True)
        .agg(buckets, edges)
    )
    return (
        # of layouts with as many requests the finer one, then a fixed order
        summed.sort(
            pl.col(buckets).list.last(), pl.col(buckets).list.len(), "layout", descending=True
        )
        .unique(KEY, keep="first", maintain_order=True)
        .select(*KEY, pl.col(buckets, edges).name.prefix("reference_"))
    )
