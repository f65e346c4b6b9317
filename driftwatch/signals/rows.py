"""Totals of a window → the evidence columns that need only vLLM's page and the configuration."""

from __future__ import annotations

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.knobs import COLUMN_KNOBS

_SECONDS = pl.col("duration_seconds")
# The serving frame: what is configured, one row per target.
SERVING_SCHEMA: dict[str, type[pl.DataType] | pl.DataType] = {
    "instance": pl.String,
    "engine": pl.String,
    "pool": pl.String,
    "max_num_seqs": pl.Float64,
    "max_num_seqs_inferred": pl.Boolean,
    "max_num_batched_tokens": pl.Float64,
    "kv_cache_tokens": pl.Float64,
    "kv_block_tokens": pl.Float64,
    "api_server_count": pl.Float64,
    "gpus_per_replica": pl.Float64,  # of one engine
    "slo_ttft_seconds": pl.Float64,
    "slo_tpot_seconds": pl.Float64,
    "slo_share": pl.Float64,
}
_SETTINGS = (*SERVING_SCHEMA, *(f"{name}_configured" for name in COLUMN_KNOBS), "start", "end")
# Settings that a stored row has as they were then.
STORED_SETTINGS = (*COLUMN_KNOBS, "max_num_seqs_inferred", "kv_cache_tokens", "kv_block_tokens")


def current_settings(
    windows: pl.DataFrame, serving: pl.DataFrame, own: pl.DataFrame
) -> pl.DataFrame:
    """Settings per window: configured, else from the page."""
    page = own.select(
        page_tokens=_config_number("kv_cache_size_tokens"),
        page_blocks=_config_number("num_gpu_blocks"),
        page_block=_config_number("block_size"),
    )
    joined = _configured(windows, serving).with_columns(*page)
    return joined.with_columns(
        kv_block_tokens=pl.coalesce("kv_block_tokens", "page_block"),
        kv_cache_tokens=pl.coalesce(
            "kv_cache_tokens", "page_tokens", pl.col("page_blocks") * pl.col("page_block")
        ),
    ).select(_SETTINGS)


def _configured(windows: pl.DataFrame, serving: pl.DataFrame) -> pl.DataFrame:
    knobs = {f"{name}_configured": pl.col(name) for name in COLUMN_KNOBS}
    joined = windows.join(serving, on=KEY, how="left", maintain_order="left")
    return joined.with_columns(**knobs)


def stored_settings(
    windows: pl.DataFrame, serving: pl.DataFrame, stored: pl.DataFrame
) -> pl.DataFrame:
    """Settings per window as stored in its last row; settings not stored are those of now."""
    then = stored.select(STORED_SETTINGS).with_columns(api_server_count=pl.lit(None, pl.Float64))
    return _configured(windows, serving).with_columns(then).select(_SETTINGS)


# Steps that exceed the budget by this factor show that another one is in force.
EXCEEDED_RATIO = 1.25


def settings_in_force(settings: pl.DataFrame, carried: pl.DataFrame) -> pl.DataFrame:
    """Clear a max_num_seqs that more requests exceed, and a max_num_batched_tokens that the steps
    exceed: vLLM runs with others. The inferred max_num_seqs takes the place of the cleared one.

    The result has ``max_num_batched_tokens_exceeded``; NULL where an input is unknown. A stored row
    has no budget that its steps exceeded: there the configured one is compared.

    ``carried``: :data:`driftwatch.diagnose.carried.CARRIED`, row for row.
    """
    inferred, most = carried["inferred_max_num_seqs"], carried["running_requests_max_of_process"]
    is_false = pl.lit(most) > pl.col("max_num_seqs")
    cap = pl.when(~is_false.fill_null(value=False)).then("max_num_seqs")
    was_inferred = pl.col("max_num_seqs_inferred").fill_null(value=False)
    settings = settings.with_columns(
        max_num_seqs_inferred=was_inferred | (cap.is_null() & pl.lit(inferred).is_not_null()),
        max_num_seqs=pl.coalesce(cap, pl.lit(inferred)),
    )
    then = pl.col("max_num_batched_tokens")
    budget = pl.coalesce(then, "max_num_batched_tokens_configured")
    exceeded = pl.lit(carried["step_tokens_max_of_process"]) > EXCEEDED_RATIO * budget
    return settings.with_columns(
        max_num_batched_tokens_exceeded=exceeded,
        max_num_batched_tokens=pl.when(~exceeded.fill_null(value=False)).then(then),
        max_num_batched_tokens_configured=budget,
    )


def _config_number(label: str) -> pl.Expr:
    """A number among the cache_config labels; NULL where absent or the string "None"."""
    return pl.col("cache_config").str.json_path_match(f"$.{label}").cast(pl.Float64, strict=False)


def _mean(histogram: str) -> pl.Expr:
    """Mean of a histogram's observations in the window; NULL without one."""
    count = pl.col(f"{histogram}_count")
    return pl.when(count > 0).then(pl.col(f"{histogram}_sum") / count)


def _rate(counter: str) -> pl.Expr:
    """Increase per second of the window; NULL where nothing was observed."""
    return pl.when(_SECONDS > 0).then(pl.col(counter) / _SECONDS)


def _over(numerator: pl.Expr, denominator: pl.Expr) -> pl.Expr:
    """A ratio that is NULL where its denominator is 0."""
    return pl.when(denominator > 0).then(numerator / denominator)


def _share(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """The same of a part; NULL where it is more than the whole."""
    return pl.when(part <= whole).then(_over(part, whole))


def base_columns(totals: pl.DataFrame, serving: pl.DataFrame) -> pl.DataFrame:
    """One evidence row per window, without reference and limit columns.

    ``totals``: from :meth:`driftwatch.signals.windows.MinuteWindows.totals`; ``serving``:
    :data:`SERVING_SCHEMA`, one row per window, in the windows' order.
    Returns: instance, engine, pool, start, end and evidence columns; plus
    ``prompt_tokens_buckets``, ``generation_tokens_buckets`` with their edges, to compare
    distributions.
    """
    settings = serving.select(c for c in SERVING_SCHEMA if c not in ("instance", "engine"))
    joined = totals.with_columns(*settings)
    steps = pl.col("iteration_tokens_count") / pl.col("api_server_count").fill_null(1.0)
    overcounted = pl.col("several_api_servers") & pl.col("api_server_count").is_null()
    outputs = pl.col("itl_seconds_count") + pl.col("ttft_seconds_count")
    waiting_capacity = pl.coalesce(
        "waiting_capacity_requests_mean",
        # before waiting_by_reason existed every waiting request waited for capacity
        "waiting_requests_mean",
    )
    rows = joined.with_columns(
        effective_batch_size=_rate("itl_seconds_sum"),
        requests_per_forward_pass=_over(outputs, steps),
        running_requests=pl.col("running_requests_mean"),
        tokens_per_forward_pass=_over(pl.col("iteration_tokens_sum"), steps),
        forward_passes=pl.when(_SECONDS > 0).then(steps),
        forward_passes_overcounted=overcounted,
        release_changed=pl.lit(None, pl.Boolean),  # no page shows it
        finished_requests=pl.col("prompt_tokens_count"),
        prompt_tokens_mean=_mean("prompt_tokens"),
        generation_tokens_mean=_mean("generation_tokens"),
        generation_tokens_per_second=_rate("generation_tokens_total"),
        waiting_requests=pl.col("waiting_requests_mean"),
        waiting_capacity_requests=waiting_capacity,
        waiting_deferred_requests=pl.col("waiting_deferred_requests_mean"),
        kv_cache_usage_ratio=pl.col("kv_cache_usage_ratio_mean"),
        preemptions_per_second=_rate("preemptions_total"),
        prefix_cache_hit_ratio=_share(
            pl.col("prefix_cache_hits_total"), pl.col("prefix_cache_queries_total")
        ),
        spec_decode_acceptance_ratio=_share(
            pl.col("spec_decode_accepted_tokens_total"), pl.col("spec_decode_draft_tokens_total")
        ),
        tokens_per_output=_over(
            pl.col("generation_tokens_total") - pl.col("ttft_seconds_count"),
            pl.col("itl_seconds_count"),
        ),
        requests_per_second=_rate("finished_requests_total"),
        rejected_requests_per_second=_rate("rejected_requests_total"),
        prefill_share_of_e2e_ratio=_over(_mean("prefill_seconds"), _mean("e2e_seconds")),
        decode_share_of_e2e_ratio=_over(_mean("decode_seconds"), _mean("e2e_seconds")),
        itl_seconds_mean=_mean("itl_seconds"),
    )
    return rows.with_columns(
        tokens_per_second_per_gpu=pl.col("generation_tokens_per_second")
        / pl.col("gpus_per_replica")
    )
