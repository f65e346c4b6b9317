"""What a simulation says: requests, steps, scrapes, a summary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from driftwatch.errors import NoVerdict
from driftwatch.simulate import kernel_layout as layout
from driftwatch.simulate.kernel_tables import ENDLESS, Tables

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
COUNTERS = {
    "steps_observed": layout.STEPS_OBSERVED,
    "steps_all": layout.STEPS_ALL,
    "iteration_tokens_sum": layout.ITERATION_TOKENS,
    "itl_seconds_count": layout.ITL_COUNT,
    "prompt_tokens": layout.PROMPT_TOKENS,
    "prompt_tokens_computed": layout.PROMPT_COMPUTED,
    "generation_tokens": layout.GENERATION_TOKENS,
    "preemptions": layout.PREEMPTIONS,
    "prefix_queries_tokens": layout.PREFIX_QUERIES,
    "prefix_hits_tokens": layout.PREFIX_HITS,
    "rejected_reqs": layout.REJECTED_REQS,
    "rejected_tokens": layout.REJECTED_TOKENS,
    "decode_seqs_total": layout.DECODE_TOTAL,
    "prefill_tokens_total": layout.PREFILL_TOTAL,
    "kv_tokens_read_total": layout.KV_TOTAL,
}


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Of one call.

    Attributes:
        requests: a row per ended request, in the order of the input: index (position in all that
            was offered), status (finished, rejected, cancelled, timed_out, unfinished),
            arrival_seconds, first_scheduled_seconds, first_token_seconds, end_seconds (absolute),
            ttft_seconds, e2e_seconds, queue_seconds (from the arrival), prompt_tokens,
            generation_tokens (asked), generated_tokens (delivered), cached_tokens (at the first
            admission), preemptions, priority. Null where it never happened.
        steps: a row per step that ended, or None: start_seconds, end_seconds and, taken after the
            schedule call and before its outputs, prefill_tokens, decode_seqs, kv_tokens_read,
            running, waiting, preempted, free_blocks (null where blocks never bind).
        scrapes: a row per scrape, or None: time_seconds; gauges after the last step that ended:
            running, waiting_capacity, waiting_deferred (as the last schedule call left them: what
            arrives during a step is not in vLLM's scheduler yet), kv_cache_usage_ratio (null where
            blocks never bind); all else counts since the engine's start, histograms as lists of
            cumulative counts with +Inf last (vLLM's own bookkeeping: an iteration is observed when
            it brings a token, a prompt is booked whole at its first token).
        summary: steps, end_seconds, busy_seconds, preemptions, rejected, empty_schedules and,
            where blocks are known one by one, evicted_cached_blocks.
    """

    requests: pl.DataFrame
    steps: pl.DataFrame | None
    scrapes: pl.DataFrame | None
    summary: dict[str, float | int]


def no_progress(t: Tables) -> NoVerdict:
    """Why an engine that is stuck ends nothing any more."""
    waiting = f"{t.head[layout.WAIT_COUNT]:,} requests wait and"
    why = (
        f"{waiting} none can be admitted"
        if t.head[layout.STUCK] == 1
        else f"{waiting} those that run preempt each other, none ends"
    )
    now = t.reals[layout.NOW]
    return NoVerdict(f"the simulated engine makes no progress at {now:.3f} s: {why}")


def delivered_tokens(t: Tables, rows: Callable[[int], Any]) -> Any:
    """Tokens that have come of each request (vector form of ``kernel_lazy.delivered``)."""
    kind, final = rows(layout.KIND), rows(layout.FINAL_STEP)
    counted = (kind == layout.LAZY) | ((kind == layout.CLOSING) & (final != layout.NONE))
    if not counted.any():
        return rows(layout.OUTPUT)
    steps = np.maximum(t.head[layout.APPLIED] - rows(layout.JOIN_STEP) + 2, 0)
    return np.where(
        counted,
        rows(layout.JOIN_COMPUTED) + steps - rows(layout.PROMPT),
        rows(layout.OUTPUT),
    )


def request_frame(t: Tables, which: Any, asked: Any) -> pl.DataFrame:
    """The rows of some requests; ``asked``: their generation_tokens as offered."""
    if not which.any():
        return REQUEST_SCHEMA.to_frame()
    everyone = bool(which.all())

    def rows(field: int) -> Any:
        return t.integers[field] if everyone else t.integers[field][which]

    def times(field: int) -> Any:
        values = t.floats[field - layout.FIRST_FLOAT]
        return values if everyone else values[which]

    def past(values: Any) -> pl.Series:
        series = pl.Series(values, dtype=pl.Float64)
        never = series == layout.NEVER
        return series.set(never, None) if never.any() else series

    arrival = times(layout.ARRIVAL)
    scheduled = times(layout.FIRST_SCHEDULED)
    token = times(layout.FIRST_TOKEN)
    end = times(layout.END)
    cached = pl.Series(rows(layout.CACHED))
    return pl.DataFrame(
        {
            "index": rows(layout.SERIAL),
            "status": STATUSES.gather(rows(layout.STATUS)),
            "arrival_seconds": past(arrival),
            "first_scheduled_seconds": past(scheduled),
            "first_token_seconds": past(token),
            "end_seconds": past(end),
            "ttft_seconds": past(since(token, arrival)),
            "e2e_seconds": past(since(end, arrival)),
            "queue_seconds": past(since(scheduled, arrival)),
            "prompt_tokens": rows(layout.PROMPT),
            "generation_tokens": asked if everyone else asked[which],
            "generated_tokens": delivered_tokens(t, rows),
            "cached_tokens": cached.set(cached == layout.NONE, None),
            "preemptions": rows(layout.PREEMPTED_TIMES),
            "priority": rows(layout.PRIORITY),
        },
        schema=REQUEST_SCHEMA,
    )


def since(values: Any, arrival: Any) -> Any:
    """Seconds from the arrival; NEVER stays."""
    with np.errstate(invalid="ignore"):
        made = values - arrival  # NEVER - NEVER is not a number
    made[values == layout.NEVER] = layout.NEVER
    return made


def step_frame(t: Tables) -> pl.DataFrame:
    """The per-step rows written so far."""
    count = int(t.head[layout.ROWS])
    frame = pl.DataFrame(
        {
            "start_seconds": t.row_starts[:count],
            "end_seconds": t.row_ends[:count],
            **{name: t.row_numbers[:count, i] for i, name in enumerate(STEP_COLUMNS)},
        }
    )
    if t.head[layout.TOTAL_BLOCKS] >= ENDLESS:
        frame = frame.with_columns(pl.lit(None, dtype=pl.Int64).alias("free_blocks"))
    return frame


def scrape_frame(t: Tables) -> pl.DataFrame:
    """The scrape rows."""
    numbers = t.scrape_numbers
    after = layout.LAST_COUNTER + 1 - layout.FIRST_COUNTER
    total = int(t.head[layout.TOTAL_BLOCKS])
    usage = (
        pl.Series([None] * len(numbers), dtype=pl.Float64)
        if total >= ENDLESS
        else pl.Series(1.0 - numbers[:, after + 3] / total)
    )

    def cumulative(counts: Any) -> pl.Series:
        return pl.Series(np.cumsum(counts, axis=1)).arr.to_list()

    return pl.DataFrame(
        {
            "time_seconds": t.scrape_times,
            "running": numbers[:, after],
            "waiting_capacity": numbers[:, after + 1],
            "waiting_deferred": numbers[:, after + 2],
            "kv_cache_usage_ratio": usage,
            **{name: numbers[:, at - layout.FIRST_COUNTER] for name, at in COUNTERS.items()},
            "busy_seconds": t.scrape_clocks[:, 0],
            "iteration_tokens_buckets": cumulative(t.scrape_iteration),
            "itl_seconds_sum": t.scrape_clocks[:, 1],
            "itl_seconds_buckets": cumulative(t.scrape_itl),
        }
    )


def summary_of(t: Tables) -> dict[str, float | int]:
    """The engine's totals so far."""
    numbers, clocks = t.head, t.reals
    made: dict[str, float | int] = {
        "steps": int(numbers[layout.STEPS_ALL]),
        "end_seconds": float(clocks[layout.LAST_OUTPUT]),
        "busy_seconds": float(clocks[layout.BUSY]),
        "preemptions": int(numbers[layout.PREEMPTIONS]),
        "rejected": int(numbers[layout.REJECTED_REQS] + numbers[layout.REJECTED_TOKENS]),
        "empty_schedules": int(numbers[layout.EMPTY_SCHEDULES]),
        "prompt_tokens_computed": int(numbers[layout.PREFILL_TOTAL]),
        "generation_tokens": int(numbers[layout.GENERATION_TOKENS]),
    }
    if t.head[layout.CACHE_MODE] == layout.IDENTIFY_BLOCKS:
        made["evicted_cached_blocks"] = int(numbers[layout.EVICTED])
    return made
