"""What "before" means, and the ratios to it.

A reference row per target has what was normal: measured in a baseline window, or declared in the
configuration (``tuned_for``). Measured values win over declared ones. A measured row also has the
histograms of lengths, to compare distributions, and the work of a forward pass, to explain a change
of throughput.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY, TIME
from driftwatch.detect.lengths import LENGTHS, MIN_REQUESTS


def extra_prefill_columns(at_least: float) -> dict[str, pl.Expr]:
    """Expressions of the evidence columns on computed prompt tokens, by name.

    Unknown with fewer than ``at_least`` first tokens in the window.
    """
    requests = pl.col("ttft_seconds_count")
    enough = (requests >= at_least) & (pl.col("duration_seconds") > 0)
    hit, hit_before = pl.col("prefix_cache_hit_ratio"), pl.col("reference_prefix_cache_hit_ratio")
    # a server's own last days have the hits, but not how much there was to compute
    is_own = ~pl.col("reference_kind").is_in(["pin", "baseline"]).fill_null(value=False)
    longer = pl.col("prompt_tokens_total") / requests / pl.col("reference_prompt_tokens_mean")
    longer = pl.when(is_own).then(1.0).otherwise(longer)
    rate = requests / pl.col("duration_seconds") / pl.col("reference_requests_per_second")
    rate = pl.when(is_own).then(1.0).otherwise(rate)
    hit_expected = hit_before / longer.clip(lower_bound=1.0)
    by_prompts = longer * _missed(hit_expected) / _missed(hit_before)
    by_hits = _missed(hit) / _missed(hit_expected)
    values = {
        "computed_prompt_tokens_ratio": pl.when(~is_own).then(rate * by_prompts * by_hits),
        "lost_prefix_hits_prefill_ratio": by_hits,
    }
    every = pl.all_horizontal(enough, *(value.is_finite() for value in (rate, by_prompts, by_hits)))
    return {name: pl.when(every).then(value) for name, value in values.items()}


def _missed(hit: pl.Expr) -> pl.Expr:
    return 1.0 - hit


# Evidence columns that a baseline stores, printed as "before" beside "now".
REMEMBERED = (
    "prompt_tokens_mean",
    "generation_tokens_mean",
    "finished_requests",
    "requests_per_second",
    "generation_tokens_per_second",
    "tokens_per_second_per_gpu",
    "effective_batch_size",
    "requests_per_forward_pass",
    "tokens_per_forward_pass",
    "batch_assembly_wait_seconds",
    "ttft_seconds_mean",
    "itl_seconds_mean",
    "prefix_cache_hit_ratio",
    "spec_decode_acceptance_ratio",
    "tokens_per_output",
    "running_requests",
    "gpu_utilization_ratio",
    "gpu_power_watts",
    "gpu_sm_clock_hertz",
    "gpu_count",
    "kv_cache_usage_ratio",
)
# What else makes throughput: first tokens per later token, and computed prompt tokens per pass.
_WORK = ("first_tokens_ratio", "prefill_tokens_per_forward_pass")
# Share of the requests that began and gave up.
_GIVEN_UP = "given_up_ratio"
# Tokens in the KV cache, mean of the window.
_KV_USED = "kv_cache_used_tokens"
# The lowest tenth of its 10-min rates: a rate below it is low for the baseline too.
LOW_RATE = "requests_per_second_low"
# How far means of windows swing by themselves (driftwatch/detect/lengths.py).
SWINGS = tuple(f"{name}_swing_{end}" for name in LENGTHS for end in ("low", "high"))
# Histograms whose 95th percentile is stored: latency targets follow from it where none is set.
LATENCIES = ("ttft_seconds", "tpot_seconds")
P95 = tuple(f"{name}_p95" for name in LATENCIES)
# Stored histograms: cumulative counts by edge.
HISTOGRAMS = tuple(f"{name}_{part}" for name in LENGTHS for part in ("buckets", "edges"))

REFERENCE_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "kind": pl.String,  # baseline | tuned_for
    "since": TIME,
    "until": TIME,
    **{
        f"reference_{c}": pl.Float64
        for c in (*REMEMBERED, *_WORK, _GIVEN_UP, _KV_USED, LOW_RATE, *P95)
    },
    **{f"reference_{c}": pl.List(pl.Float64) for c in (*HISTOGRAMS, *SWINGS)},
}
# The part of it that evidence rows carry.
REFERENCE_COLUMNS = tuple(c for c in REFERENCE_SCHEMA if c.startswith("reference_"))

# ratio column → the evidence column it compares
_RATIOS: Mapping[str, str] = {
    "requests_per_second_ratio": "requests_per_second",
    "tokens_per_second_per_gpu_ratio": "tokens_per_second_per_gpu",
    "gpu_sm_clock_ratio": "gpu_sm_clock_hertz",
}
_LOW_RATIO = "requests_per_second_low_ratio"


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
    rows = no_reference()
    for reference in references:
        rows = pl.concat([rows, reference.join(rows.select(KEY), on=KEY, how="anti")])
    return rows


def with_reference(
    rows: pl.DataFrame, ten_minutes: pl.DataFrame, reference: pl.DataFrame
) -> pl.DataFrame:
    """Add the ratio columns and the ``reference_*`` columns they were made from.

    ``ten_minutes``: totals of the ten minutes that end with each row.
    """
    joined = rows.join(
        reference.rename(
            {"kind": "reference_kind", "since": "reference_since", "until": "reference_until"}
        ),
        on=KEY,
        how="left",
        maintain_order="left",
    )
    return joined.with_columns(
        **{
            f"{name}_mean_ratio": _recent_mean(rows, ten_minutes, name)
            / joined[f"reference_{name}_mean"]
            for name in LENGTHS
        },
        **{
            ratio: pl.when(pl.col(f"reference_{column}") > 0).then(
                pl.col(column) / pl.col(f"reference_{column}")
            )
            for ratio, column in _RATIOS.items()
        },
        **{
            _LOW_RATIO: pl.when(pl.col(f"reference_{LOW_RATE}") > 0).then(
                pl.col("requests_per_second") / pl.col(f"reference_{LOW_RATE}")
            )
        },
        **extra_prefill_columns(MIN_REQUESTS),
    )


def _recent_mean(rows: pl.DataFrame, ten_minutes: pl.DataFrame, name: str) -> pl.Series:
    """Mean length of each window; for a window below ten minutes of the ten that end with it.

    Unknown with fewer than MIN_REQUESTS requests, or where the window has no usable scrape.
    """
    parts = [f"{name}_sum", f"{name}_count"]
    is_long = rows.select(pl.col("end") - pl.col("start") >= pl.duration(minutes=10)).to_series()
    total, count = (rows[part].zip_with(is_long, ten_minutes[part]) for part in parts)
    known = (count >= MIN_REQUESTS) & (rows["scrapes"] > 0)
    return pl.select(pl.when(known).then(total / count)).to_series()
