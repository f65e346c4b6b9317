"""What "before" means, and the ratios to it.

A reference row per target says what was normal: measured in a baseline window that a person named,
or declared in the configuration (``tuned_for``). Measured values win over declared ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, TIME

_KEY = list(KEY_COLUMNS)
# A mean of fewer lengths is not compared (detection.md: LengthDrift, n >= 100).
MIN_REQUESTS = 100

# Evidence columns that a baseline window remembers, printed as "before" beside "now".
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
    "e2e_seconds_mean",
    "prefix_cache_hit_ratio",
    "running_requests",
    "gpu_utilization_ratio",
    "gpu_power_watts",
    "gpu_sm_clock_hertz",
)

REFERENCE_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "kind": pl.String,  # baseline | tuned_for
    "since": TIME,
    "until": TIME,
    **{f"reference_{c}": pl.Float64 for c in REMEMBERED},
}

# ratio column → the evidence column it compares
_RATIOS: Mapping[str, str] = {
    "requests_per_second_ratio": "requests_per_second",
    "tokens_per_second_per_gpu_ratio": "tokens_per_second_per_gpu",
    "gpu_sm_clock_ratio": "gpu_sm_clock_hertz",
}
_LENGTHS = ("prompt_tokens", "generation_tokens")


def no_reference() -> pl.DataFrame:
    """A reference table without rows."""
    return pl.DataFrame(schema=REFERENCE_SCHEMA)


def baseline(rows: pl.DataFrame) -> pl.DataFrame:
    """Evidence rows of a baseline window → reference rows.

    Lengths of fewer than MIN_REQUESTS requests are not remembered.

    Args:
        rows: evidence rows, one per target, with ``start`` and ``end``.
    """
    enough = pl.col("finished_requests") >= MIN_REQUESTS
    return rows.select(
        *_KEY,
        kind=pl.lit("baseline"),
        since="start",
        until="end",
        **{
            f"reference_{c}": pl.when(enough).then(pl.col(c))
            if c in ("prompt_tokens_mean", "generation_tokens_mean")
            else pl.col(c)
            for c in REMEMBERED
        },
    ).cast(pl.Schema(REFERENCE_SCHEMA))


def declared(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """``tuned_for`` declarations → reference rows.

    Args:
        rows: instance, engine, reference_prompt_tokens_mean, reference_generation_tokens_mean.
    """
    return pl.DataFrame(
        [{"kind": "tuned_for", **row} for row in rows], schema=REFERENCE_SCHEMA, orient="row"
    )


def combined(measured: pl.DataFrame, declared_rows: pl.DataFrame) -> pl.DataFrame:
    """One reference row per target: measured where there is one, else declared."""
    return pl.concat([measured, declared_rows.join(measured.select(_KEY), on=_KEY, how="anti")])


def with_reference(
    rows: pl.DataFrame, two_minutes: pl.DataFrame | None, reference: pl.DataFrame
) -> pl.DataFrame:
    """Add the ratio columns and the ``reference_*`` columns they were made from.

    Args:
        rows: evidence rows.
        two_minutes: totals of the 2-min windows ending with each row, in the same order; None
            where the row's own window stands for them.
        reference: :data:`REFERENCE_SCHEMA`.
    """
    joined = rows.join(
        reference.rename(
            {"kind": "reference_kind", "since": "reference_since", "until": "reference_until"}
        ),
        on=_KEY,
        how="left",
        maintain_order="left",
    )
    recent = rows if two_minutes is None else two_minutes
    # a window without a usable scrape says nothing, whatever the minute before it said
    recent = recent.with_columns(fresh=rows["scrapes"] > 0)
    fresh = pl.col("fresh")
    joined = joined.with_columns(
        recent.select(finished_requests_2m=pl.col("prompt_tokens_count")).to_series(),
        *[
            recent.select(
                pl.when((pl.col(f"{name}_count") >= MIN_REQUESTS) & fresh)
                .then(pl.col(f"{name}_sum") / pl.col(f"{name}_count"))
                .alias(f"{name}_mean_2m")
            ).to_series()
            for name in _LENGTHS
        ],
    )
    enough = pl.col("finished_requests") >= MIN_REQUESTS
    return joined.with_columns(
        **{
            f"{name}_mean_ratio": pl.when(enough).then(
                pl.col(f"{name}_mean") / pl.col(f"reference_{name}_mean")
            )
            for name in _LENGTHS
        },
        **{
            f"{name}_mean_2m_ratio": pl.col(f"{name}_mean_2m") / pl.col(f"reference_{name}_mean")
            for name in _LENGTHS
        },
        **{
            ratio: pl.when(pl.col(f"reference_{column}") > 0).then(
                pl.col(column) / pl.col(f"reference_{column}")
            )
            for ratio, column in _RATIOS.items()
        },
    ).drop(f"{name}_mean_2m" for name in _LENGTHS)
