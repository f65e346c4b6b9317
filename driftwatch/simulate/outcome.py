"""What a simulation says: requests, steps, scrapes, a summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from driftwatch.errors import NoVerdict
from driftwatch.simulate.kernel import tables as k
from driftwatch.simulate.kernel.tables import Tables

STATUS = pl.Enum(["finished", "rejected", "cancelled", "timed_out", "unfinished"])
STATUSES = pl.Series(  # by the kernel's status
    ["unfinished"] * 4 + ["finished", "rejected", "cancelled", "timed_out"], dtype=STATUS
)
REQUEST_SCHEMA = pl.Schema(
    {
        "index": pl.Int64(),
        "status": STATUS,
        "arrival_seconds": pl.Float64(),
        "first_scheduled_seconds": pl.Float64(),
        "first_token_seconds": pl.Float64(),
        "end_seconds": pl.Float64(),
        "ttft_seconds": pl.Float64(),
        "e2e_seconds": pl.Float64(),
        "queue_seconds": pl.Float64(),
        "prompt_tokens": pl.Int64(),
        "generation_tokens": pl.Int64(),
        "generated_tokens": pl.Int64(),
        "cached_tokens": pl.Int64(),
        "preemptions": pl.Int64(),
        "priority": pl.Int64(),
    }
)
STEP_COLUMNS = (
    "prefill_tokens",
    "decode_seqs",
    "kv_tokens_read",
    "running",
    "waiting",
    "preempted",
    "free_blocks",
)
COUNTERS = (
    "steps_observed",
    "steps_all",
    "iteration_tokens_sum",
    "itl_seconds_count",
    "prompt_tokens",
    "prompt_tokens_computed",
    "generation_tokens",
    "preemptions",
    "prefix_queries_tokens",
    "prefix_hits_tokens",
    "rejected_reqs",
    "rejected_tokens",
    "decode_seqs_total",
    "prefill_tokens_total",
    "kv_tokens_read_total",
)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Of one call."""

    # a row per ended request, in the order of the input: index (position in all that was offered),
    # status (finished, rejected, cancelled, timed_out, unfinished), arrival_seconds,
    # first_scheduled_seconds, first_token_seconds, end_seconds (absolute), ttft_seconds,
    # e2e_seconds, queue_seconds (from the arrival), prompt_tokens, generation_tokens (asked),
    # generated_tokens (delivered), cached_tokens (at the first admission), preemptions, priority.
    # Null where it never happened.
    requests: pl.DataFrame
    # a row per step that ended, or None: start_seconds, end_seconds and, taken after the schedule
    # call and before its outputs, prefill_tokens, decode_seqs, kv_tokens_read, running, waiting,
    # preempted, free_blocks (null where blocks never bind)
    steps: pl.DataFrame | None
    # a row per scrape, or None: time_seconds; gauges after the last step that ended: running,
    # waiting_capacity, waiting_deferred (as the last schedule call left them: what arrives during a
    # step is not in vLLM's scheduler yet), kv_cache_usage_ratio (null where blocks never bind); all
    # else counts since the engine's start, histograms as lists of cumulative counts with +Inf last
    # (vLLM's own bookkeeping: an iteration is observed when it brings a token, a prompt is booked
    # whole at its first token)
    scrapes: pl.DataFrame | None
    # steps, end_seconds, busy_seconds, preemptions, rejected, empty_schedules and, where blocks are
    # known one by one, evicted_cached_blocks
    summary: dict[str, float | int]


def no_progress(t: Tables) -> NoVerdict:
    """Why an engine that is stuck ends nothing any more."""
    engine = t.engine[0]
    why = (
        "none can be admitted"
        if engine["stuck"] == k.NOBODY_ADMITTED
        else "those that run preempt each other, none ends"
    )
    return NoVerdict(
        f"the simulated engine makes no progress at {engine['now']:.3f} s: "
        f"{engine['wait_count']:,} requests wait and {why}"
    )


def request_frame(t: Tables, which: Any, generation_tokens: Any) -> pl.DataFrame:
    """The rows of some requests; ``generation_tokens``: of all, as offered."""
    if not which.any():
        return REQUEST_SCHEMA.to_frame()
    everyone = bool(which.all())
    rows = t.requests if everyone else t.requests[which]

    def column(name: str) -> Any:
        return rows[name].copy()

    def past(values: Any) -> pl.Series:
        series = pl.Series(values, dtype=pl.Float64)
        never = series == k.NEVER
        return series.set(never, None) if never.any() else series

    def since(values: Any, arrival: Any) -> pl.Series:
        with np.errstate(invalid="ignore"):
            spans = values - arrival  # NEVER - NEVER is not a number
        spans[values == k.NEVER] = k.NEVER
        return past(spans)

    arrival, end = column("arrival"), column("end")
    scheduled, token = column("first_scheduled"), column("first_token")
    cached = pl.Series(column("cached"))
    return pl.DataFrame(
        {
            "index": column("serial"),
            "status": STATUSES.gather(column("status")),
            "arrival_seconds": past(arrival),
            "first_scheduled_seconds": past(scheduled),
            "first_token_seconds": past(token),
            "end_seconds": past(end),
            "ttft_seconds": since(token, arrival),
            "e2e_seconds": since(end, arrival),
            "queue_seconds": since(scheduled, arrival),
            "prompt_tokens": column("prompt"),
            "generation_tokens": generation_tokens if everyone else generation_tokens[which],
            "generated_tokens": _delivered(t, rows),
            "cached_tokens": cached.set(cached == k.NONE, None),
            "preemptions": column("preemptions"),
            "priority": column("priority"),
        },
        schema=REQUEST_SCHEMA,
    )


def _delivered(t: Tables, rows: Any) -> Any:
    """Tokens that each client has (``kernel.decoding.delivered`` of each)."""
    kind, final = rows["kind"], rows["final_step"]
    counted = (kind == k.LAZY) | ((kind == k.CLOSING) & (final != k.NONE))
    if not counted.any():
        return rows["output"].copy()
    steps = np.maximum(t.engine[0]["applied"] - rows["join_step"] + 2, 0)
    return np.where(counted, rows["join_computed"] + steps - rows["prompt"], rows["output"])


def step_frame(t: Tables) -> pl.DataFrame:
    """The per-step rows written so far."""
    rows = t.rows[: t.engine[0]["rows"]]
    columns = ("start_seconds", "end_seconds", *STEP_COLUMNS)
    frame = pl.DataFrame({name: rows[name].copy() for name in columns})
    if t.engine[0]["total_blocks"] >= k.ENDLESS:
        frame = frame.with_columns(pl.lit(None, dtype=pl.Int64).alias("free_blocks"))
    return frame


def scrape_frame(t: Tables) -> pl.DataFrame:
    """The scrape rows."""
    total = int(t.engine[0]["total_blocks"])

    def column(name: str) -> Any:
        return t.scraped[name].copy()

    def cumulative(counts: Any) -> pl.Series:
        return pl.Series(np.cumsum(counts, axis=1)).arr.to_list()

    usage = (
        pl.Series([None] * len(t.scraped), dtype=pl.Float64)
        if total >= k.ENDLESS
        else pl.Series(1.0 - column("free_blocks") / total)
    )
    return pl.DataFrame(
        {
            "time_seconds": t.scrape_times,
            **{n: column(n) for n in ("running", "waiting_capacity", "waiting_deferred")},
            "kv_cache_usage_ratio": usage,
            **{name: column(name) for name in COUNTERS},
            "busy_seconds": column("busy_seconds"),
            "iteration_tokens_buckets": cumulative(t.scraped_iteration),
            "itl_seconds_sum": column("itl_seconds_sum"),
            "itl_seconds_buckets": cumulative(t.scraped_itl),
        }
    )


def summary_of(t: Tables) -> dict[str, float | int]:
    """The engine's totals so far."""
    engine, counters = t.engine[0], t.counters[0]
    summary: dict[str, float | int] = {
        "steps": int(counters["steps_all"]),
        "end_seconds": float(engine["last_output"]),
        "busy_seconds": float(counters["busy_seconds"]),
        "preemptions": int(counters["preemptions"]),
        "rejected": int(counters["rejected_reqs"] + counters["rejected_tokens"]),
        "empty_schedules": int(counters["empty_schedules"]),
        "prompt_tokens_computed": int(counters["prefill_tokens_total"]),
        "generation_tokens": int(counters["generation_tokens"]),
    }
    if engine["cache_mode"] == k.IDENTIFY_BLOCKS:
        summary["evicted_cached_blocks"] = int(counters["evicted_blocks"])
    return summary
