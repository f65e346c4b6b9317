"""The evidence table: minute rows and windows in, evidence rows out.

A live minute, a replayed month and ``explain`` call the same function; only the windows differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl
import polars.selectors as cs

from driftwatch.collect.schema import KEY, TIME
from driftwatch.detect.reference import no_reference, with_reference
from driftwatch.diagnose.allowances import with_allowances
from driftwatch.diagnose.carried import CARRIED, carried_values, gauges_live, since_last_token
from driftwatch.diagnose.limits import final_binding_limit, limit_columns
from driftwatch.diagnose.plateau import scrapes_at_most, shown_caps
from driftwatch.diagnose.states import in_schema_order, with_states
from driftwatch.evidence import COLUMNS, DETECTED, TEXTS
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.minutes.rows import minute_grid, minute_rows
from driftwatch.minutes.schema import COUNTS, MINUTE_ROW_SCHEMA, QUEUED
from driftwatch.signals.coverage import coverage_columns, input_coverage
from driftwatch.signals.gpus import GPU_COLUMNS, gpu_columns, window_gpus
from driftwatch.signals.rows import (
    STORED_SETTINGS,
    base_columns,
    current_settings,
    settings_in_force,
    stored_settings,
)
from driftwatch.signals.slo import slo_columns
from driftwatch.signals.windows import MinuteWindows, Spans

_BINDING_MINUTES = 10
# A minute needs the rows of this time before it.
HISTORY = timedelta(minutes=_BINDING_MINUTES)

WINDOW_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "start": TIME,
    "end": TIME,
}
# Values that a minute row inherits from the minutes before it; stored with the row.
INHERITED_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(CARRIED, pl.Float64),
    "seconds_since_last_token": pl.Float64,
    "gauges_live": pl.Boolean,
    "coverage_missing_seconds": pl.Float64,
    "coverage_missing_inputs": pl.String,
    "pool_coverage_missing_ratio": pl.Float64,
    "ever_seen": pl.Boolean,  # some input of the target has been on its page
}
# A minute row as stored: evidence is made of these columns alone.
ROW_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    **MINUTE_ROW_SCHEMA,
    **GPU_COLUMNS,
    **INHERITED_SCHEMA,
}
# Stored with a row, never computed again: they need the ten minutes before, history or the pool.
STORED_RESULTS = (
    *(c.name for c in COLUMNS if c.stored and c.name not in {*ROW_SCHEMA, "binding_margin_ratio"}),
    *DETECTED,
    *("limit_binding_share_10m_ratio", "slo_missed"),
    *("binding_requests", "binding_since", "deferred_since", *TEXTS),
    *STORED_SETTINGS,
)
_FLAGS = ("restarted", "configuration_changed", "release_changed")
# Columns that lengths, waits and latencies over ten minutes need.
_SUMS_10M = (
    *(
        f"{name}_{part}"
        for name in ("prompt_tokens", "generation_tokens", *("queue_seconds", "ttft_seconds"))
        for part in ("sum", "count")
    ),
    *("prefill_seconds_sum", "given_up_requests", "preemptions_total"),
    *("prefix_cache_queries_total", "tpot_seconds_sum", "tpot_seconds_count"),
)
_BUCKETS_10M = ("ttft_seconds", "tpot_seconds")
# Columns that evaluation reads of earlier minutes.
RECENT = tuple(
    dict.fromkeys(
        (
            *KEY,
            "end",
            "scrapes",
            "duration_seconds",
            "restarted",
            "configuration_changed",
            "several_api_servers",
            "seconds_since_last_token",
            "running_requests_max",
            *_SUMS_10M,
            *COUNTS,
            *(f"{name}_{part}" for name in _BUCKETS_10M for part in ("buckets", "edges")),
            *QUEUED,
            *CARRIED,
            "gpu_model",
        )
    )
)


def no_recent() -> pl.DataFrame:
    """No earlier minute."""
    return _NO_ROWS.select(RECENT)


def no_rows() -> pl.DataFrame:
    """No minute."""
    return _NO_ROWS.clone()


_NO_ROWS = pl.DataFrame(schema=ROW_SCHEMA)


def no_inputs_seen() -> pl.DataFrame:
    """No input has been seen yet."""
    return pl.DataFrame(schema=dict.fromkeys(KEY, pl.String))


@dataclass(frozen=True, slots=True)
class InheritedRows:
    """New minute rows with the values that they inherit."""

    rows: pl.DataFrame  # :data:`ROW_SCHEMA`, by target and end
    recent: pl.DataFrame  # :data:`RECENT` of them and of the minutes before, by target and end
    inputs_seen: pl.DataFrame  # for the next minutes (:func:`input_coverage`)


def with_inherited(
    before: pl.DataFrame,
    new: pl.DataFrame,
    serving: pl.DataFrame,
    inputs: tuple[str, ...],
    inputs_seen: pl.DataFrame,
) -> InheritedRows:
    """New minute rows with :data:`INHERITED_SCHEMA`.

    ``before``: :data:`RECENT`, of the last :data:`HISTORY`; ``new``: minute rows with
    :data:`driftwatch.signals.gpus.GPU_COLUMNS`, the same minutes of every target, by target and
    end; ``serving``: :data:`driftwatch.signals.rows.SERVING_SCHEMA`; ``inputs``: registry columns
    whose loss counts.
    """
    seen = input_coverage(new, inputs_seen, inputs)
    names = [name for name in RECENT if name in new.columns]
    recent = pl.concat([before.select(names), new.select(names)]).sort([*KEY, "end"])
    caps = shown_caps(recent, new, serving)
    last = before.select(*KEY, *CARRIED).unique(KEY, keep="last", maintain_order=True)
    carried = carried_values(new, caps, scrapes_at_most(new, serving), last)
    found = new.hstack(coverage_columns(seen, serving).drop(*KEY, "end")).with_columns(
        carried, ever_seen=_ever_seen(seen), seconds_since_last_token=since_last_token(new, carried)
    )
    live = gauges_live(
        new, carried, found["seconds_since_last_token"], serving.select(*KEY, "pool")
    )
    found = found.with_columns(live.alias("gauges_live"))
    rows = found.select(pl.col(name).cast(dtype) for name, dtype in ROW_SCHEMA.items())
    both = pl.concat([before.select(RECENT), rows.select(RECENT)]).sort([*KEY, "end"])
    return InheritedRows(rows, both, seen.group_by(KEY, maintain_order=True).last().drop("end"))


def _ever_seen(seen: pl.DataFrame) -> pl.Series:
    inputs = [pl.col(c).is_not_null() for c in seen.columns if c.startswith("seen_")]
    return seen.select(
        ever_seen=pl.any_horizontal(pl.repeat(False, pl.len(), dtype=pl.Boolean), *inputs)
    ).to_series()


def rows_of_scrapes(
    scrapes: pl.DataFrame,
    serving: pl.DataFrame,
    since: datetime,
    until: datetime,
    inputs: tuple[str, ...] = (),
    gpus: pl.DataFrame | None = None,
    gpu_targets: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The minutes of [since, until) as :data:`ROW_SCHEMA`, of targets without a past."""
    grid = minute_grid(serving, since, until)
    new = minute_rows(scrapes, serving, since, until).rows
    on_gpus = gpu_columns(grid, gpus, gpu_targets).select(*GPU_COLUMNS)
    return with_inherited(no_rows(), new.hstack(on_gpus), serving, inputs, no_inputs_seen()).rows


def evidence_table(
    rows: pl.DataFrame,
    windows: pl.DataFrame,
    *,
    serving: pl.DataFrame,
    reference: pl.DataFrame | None = None,
    recent: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Evidence rows of windows, in the windows' order.

    ``rows``: :data:`ROW_SCHEMA`, by target and end. Stored rows
    (:data:`driftwatch.store.minute_columns.STORED_SCHEMA`) also have :data:`STORED_RESULTS`: a
    window takes these from its last row and computes none of them. ``seconds`` distinguishes
    minutes from longer rows.
    ``windows``: :data:`WINDOW_SCHEMA`, whole minutes. A window of several minutes begins after its
    last restart, knob change or hang; a window of one minute adds up both sides. ``serving``:
    :data:`driftwatch.signals.rows.SERVING_SCHEMA`, one row per target, as configured;
    ``reference``: :data:`driftwatch.detect.reference.REFERENCE_SCHEMA`; ``recent``:
    :data:`RECENT`, of these minutes and those before; None = ``rows`` has them.
    Returns: the evidence columns, then columns that pages need (``allows_*``,
    ``binding_requests``, ``binding_since``, ``reference_*``, ``cache_config``, histograms).
    """
    stored = STORED_RESULTS[0] in rows.columns
    minutes = MinuteWindows(_with_steps_once(rows) if stored else rows)
    spans = minutes.spans(windows, cut=True)
    own = minutes.totals(windows, spans)
    before = minutes if recent is None else MinuteWindows(recent)
    ten = before.spans(windows, _BINDING_MINUTES, cut=True)
    last_10m = before.sums([*_SUMS_10M, "duration_seconds"], ten, _BUCKETS_10M)
    last_10m = last_10m.with_columns(before.maximum("running_requests_max", ten))
    found = minutes.at_end(list(INHERITED_SCHEMA), spans)
    on_gpus = window_gpus(minutes, spans)
    results = minutes.last_row(STORED_RESULTS, spans) if stored else None
    if results is None:
        settings = current_settings(windows, serving, own)
    else:
        settings = stored_settings(windows, serving, results)
    settings = settings_in_force(settings, found)
    # GPUs of this engine, declared or else found: rates per GPU divide by this column
    settings = settings.with_columns(gpus_per_replica=on_gpus["gpu_count"])
    evidence = (
        base_columns(own, settings)
        .with_columns(
            *on_gpus,
            settings["max_num_batched_tokens_exceeded"],
            *(settings[f"{name}_configured"] for name in COLUMN_KNOBS),
        )
        .with_columns(
            *found,
            *slo_columns(last_10m, settings),
            *ten_minute_columns(last_10m),
        )
    )
    if results is None:
        evidence = _with_limits(evidence, before, ten, settings, found)
    else:
        flags = minutes.flags(_FLAGS, minutes.spans(windows, cut=False))
        missed = pl.select(pl.coalesce(evidence["slo_missed"], results["slo_missed"])).to_series()
        evidence = evidence.with_columns(
            *results.drop(STORED_SETTINGS, "slo_missed"), *flags, missed
        )
    evidence = _only_when_fresh(evidence)
    known_before = no_reference() if reference is None else reference
    evidence = with_allowances(with_reference(evidence, last_10m, known_before))
    return with_states(in_schema_order(_with_idle_peers(evidence) if results is None else evidence))


def _with_steps_once(rows: pl.DataFrame) -> pl.DataFrame:
    """Stored rows with each forward pass counted once, for any number of API servers."""
    return rows.with_columns(
        pl.coalesce("forward_passes", "iteration_tokens_count").alias("iteration_tokens_count"),
        pl.col("forward_passes_overcounted").alias("several_api_servers"),
    )


def _with_limits(
    rows: pl.DataFrame,
    minutes: MinuteWindows,
    ten: Spans,
    settings: pl.DataFrame,
    found: pl.DataFrame,
) -> pl.DataFrame:
    """The limit that binds over the ten minutes up to each end, and the wait that it causes."""
    limiting = settings.with_row_index("window").select("window", *_LIMITING)
    limiting = limiting.with_columns(
        found["running_requests_max_of_process"].alias("running_max"),
        minutes.maximum("running_requests_max", ten).alias("running_max_10m"),
        *minutes.last_of(["several_api_servers"], ten),
    )
    counted = minutes.of_minutes(ten, ("end", *COUNTS))
    limits = limit_columns(minutes.queued(ten), counted, limiting)
    return (
        rows.with_row_index("window")
        .join(limits, on="window", how="left", maintain_order="left")
        .drop("window")
        .with_columns(final_binding_limit(), queue_wait_estimate_10m_seconds=_queue_wait())
    )


# Settings that limits depend on.
_LIMITING = (*COLUMN_KNOBS, "max_num_seqs_inferred", "api_server_count")
# A fair router gives every server of a pool as many requests; of 30, half is not chance.
_GIVEN_LESS_RATIO = 0.5
# Columns that reach further back than the window itself.
_LOOKBACK = (cs.contains("_10m") | cs.starts_with("binding_")) - cs.by_name(
    "first_tokens_10m", require_all=False
) | cs.by_name("slo_missed", "seconds_since_last_token", "gauges_live")


def _only_when_fresh(rows: pl.DataFrame) -> pl.DataFrame:
    """NULL in :data:`_LOOKBACK` of windows without a usable scrape."""
    return rows.with_columns(pl.when(pl.col("scrapes") > 0).then(_LOOKBACK))


def _queue_wait() -> pl.Expr:
    """Waiting for capacity over first tokens per second (Little's law)."""
    # without a first token this is a lower bound
    served = pl.col("first_tokens_10m").clip(lower_bound=1.0)
    return pl.when(pl.col("observed_10m_seconds") > 0).then(
        pl.col("capacity_mean") * pl.col("observed_10m_seconds") / served
    )


def ten_minute_columns(last_10m: pl.DataFrame) -> pl.DataFrame:
    """Waits of the last 10 min, since the last restart or knob change."""
    wait = pl.when(pl.col("queue_seconds_count") > 0).then(
        pl.col("queue_seconds_sum") / pl.col("queue_seconds_count")
    )
    ttft = pl.when(pl.col("ttft_seconds_count") > 0).then(
        pl.col("ttft_seconds_sum") / pl.col("ttft_seconds_count")
    )
    return last_10m.select(
        observed_10m_seconds=pl.col("duration_seconds").fill_null(0.0),
        batch_assembly_wait_10m_seconds=wait,
        ttft_10m_seconds=ttft,
        first_tokens_10m=pl.col("ttft_seconds_count"),
        **given_up_columns(),
    )


# Two standard deviations, and one request that a step may hold between two gauges.
_DEVIATIONS, _A_STEP = 2.0, 1.0


def given_up_columns() -> dict[str, pl.Expr]:
    """Requests of ten minutes that began and will not finish, and the lower bound of their share.

    Gauges do not show which prompts are in prefill at the ends of the window. Little's law gives
    their number, with the scatter of counts. A preempted request has begun and waits again; V0
    (without counters of the prefix cache) also counts its first token again.
    """
    begun, finished = pl.col("ttft_seconds_count"), pl.col("prompt_tokens_count")
    # vLLM counts no prefill time of requests that gave up
    of_finished = pl.when(finished > 0).then(pl.col("prefill_seconds_sum") * begun / finished)
    seconds = pl.coalesce(of_finished, "ttft_seconds_sum")
    in_prefill = seconds / pl.col("duration_seconds")
    once = pl.col("prefix_cache_queries_total").is_not_null()
    most = pl.when(once).then(pl.min_horizontal("preemptions_total", "running_requests_max"))
    preempted = pl.coalesce(most, "preemptions_total")
    unsure = _A_STEP + _DEVIATIONS * (2 * in_prefill).sqrt() + preempted
    found = pl.col("given_up_requests").clip(lower_bound=0.0)
    low = (pl.col("given_up_requests") - unsure).clip(lower_bound=0.0)
    return {
        "given_up_requests_10m": found,
        "given_up_10m_low_ratio": pl.when(begun > 0).then((low / begun).clip(upper_bound=1.0)),
    }


def _with_idle_peers(rows: pl.DataFrame) -> pl.DataFrame:
    """Share of the pool's other targets that run and queue no request, and get fewer of them."""
    group = ["pool", "start", "end"]
    first_tokens = pl.col("first_tokens_10m")
    idle = (
        (pl.col("running_requests") < 1)
        & (pl.col("waiting_requests") == 0)
        & (first_tokens < _GIVEN_LESS_RATIO * first_tokens.mean().over(group))
    ).cast(pl.Float64)
    others = idle.count().over(group) - 1
    others_idle = idle.sum().over(group) - idle
    return rows.with_columns(
        pool_idle_ratio=pl.when((others > 0) & pl.col("pool").is_not_null()).then(
            others_idle / others
        )
    )
