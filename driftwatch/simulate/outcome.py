"""What an engine's tables say as frames: requests, steps, scrapes, a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from polars import selectors as cs

from driftwatch.simulate.kernel import tables as k
from driftwatch.simulate.kernel.tables import Tables

STATUS = pl.Enum(["finished", "rejected", "cancelled", "timed_out", "unfinished"])
STATUSES = pl.Series(  # by the kernel's status
    ["unfinished"] * 4 + ["finished", "rejected", "cancelled", "timed_out"], dtype=STATUS
)
_REQUESTS = {  # column → field of ``kernel.tables.REQUEST``
    "index": "serial",
    "status": "status",
    **{f"{n}_seconds": n for n in ("arrival", "first_scheduled", "first_token", "end")},
    "prompt_tokens": "prompt",
    "target": "target",
    "cached_tokens": "cached",
    "preemptions": "preemptions",
}
_STEP_COLUMNS = (
    *("start_seconds", "end_seconds", "prefill_tokens", "decode_seqs", "kv_tokens_read"),
    *("running", "waiting", "preempted", "free_blocks"),
)


def request_frame(t: Tables) -> pl.DataFrame:
    """A row a request, in the order in which they were offered.

    index (position in all that was offered), status (finished, rejected, cancelled, timed_out,
    unfinished), arrival_seconds, first_scheduled_seconds, first_token_seconds, end_seconds
    (absolute), ttft_seconds, e2e_seconds, queue_seconds (from the arrival), prompt_tokens,
    generation_tokens (asked, less what max_model_len cuts off), generated_tokens (delivered),
    cached_tokens (at the first admission), preemptions. Null where it never happened.
    """
    seconds, arrival = cs.ends_with("_seconds"), pl.col("arrival_seconds")
    frame = pl.DataFrame({name: t.requests[field].copy() for name, field in _REQUESTS.items()})
    return (
        frame.with_columns(pl.when(seconds.is_finite()).then(seconds))
        .with_columns(
            pl.lit(STATUSES).gather(pl.col("status")).alias("status"),
            (pl.col("first_token_seconds") - arrival).alias("ttft_seconds"),
            (pl.col("end_seconds") - arrival).alias("e2e_seconds"),
            (pl.col("first_scheduled_seconds") - arrival).alias("queue_seconds"),
            (pl.col("target") - pl.col("prompt_tokens")).alias("generation_tokens"),
            pl.Series("generated_tokens", _delivered(t)),
            pl.when(pl.col("cached_tokens") >= 0).then(pl.col("cached_tokens")),
        )
        .drop("target")
        .cast({cs.integer(): pl.Int64})
    )


def _delivered(t: Tables) -> Any:
    """Tokens that each client has (``kernel.decoding.delivered`` of each)."""
    rows = t.requests
    kind, final = rows["kind"], rows["final_step"]
    counted = (kind == k.LAZY) | ((kind == k.CLOSING) & (final != k.NONE))
    if not counted.any():
        return rows["output"].copy()
    steps = np.maximum(t.engine[0]["applied"] - rows["join_step"] + 2, 0)
    return np.where(counted, rows["join_computed"] + steps - rows["prompt"], rows["output"])


def step_frame(t: Tables, pieces: Sequence[Any]) -> pl.DataFrame:
    """A row per step that ended.

    start_seconds, end_seconds and, taken after the schedule call and before its outputs,
    prefill_tokens, decode_seqs, kv_tokens_read, running, waiting, preempted, free_blocks (null
    where blocks never bind). ``pieces``: the per-step table, each time it was read.
    """
    frame = pl.DataFrame({n: np.concatenate([rows[n] for rows in pieces]) for n in _STEP_COLUMNS})
    if t.engine[0]["total_blocks"] >= k.ENDLESS:
        frame = frame.with_columns(pl.lit(None, dtype=pl.Int64).alias("free_blocks"))
    return frame


def scrape_frame(t: Tables) -> pl.DataFrame:
    """A row per scrape.

    time_seconds; gauges after the last step that ended: running, waiting_capacity,
    waiting_deferred (as the last schedule call left them: what arrives during a step is not in
    vLLM's scheduler yet), kv_cache_usage_ratio (null where blocks never bind); all else counts
    since the engine's start, histograms as lists of cumulative counts with +Inf last (vLLM's own
    bookkeeping: an iteration is observed when it brings a token, a prompt is booked whole at its
    first token).
    """

    def cumulative(counts: Any) -> pl.Series:
        return pl.Series(np.cumsum(counts, axis=1)).arr.to_list()

    usage = usage_ratio(t)
    names = k.COUNTERS.names or ()
    return pl.DataFrame(
        {
            "time_seconds": t.scrape_times,
            **{name: t.scraped[name].copy() for name in names if name != "free_blocks"},
            "kv_cache_usage_ratio": usage if usage is not None else [None] * len(t.scraped),
            "iteration_tokens_buckets": cumulative(t.scraped_iteration),
            "itl_seconds_buckets": cumulative(t.scraped_itl),
        },
        schema_overrides={"kv_cache_usage_ratio": pl.Float64()},
    )


def usage_ratio(t: Tables) -> Any:
    """kv_cache_usage_ratio at each scrape; None where blocks never bind."""
    total = int(t.engine[0]["total_blocks"])
    return None if total >= k.ENDLESS else 1.0 - t.scraped["free_blocks"] / total


def summary_of(t: Tables) -> dict[str, float | int]:
    """The engine's totals so far."""
    counters = t.counters[0]
    return {
        "steps": int(counters["steps_all"]),
        "end_seconds": float(t.engine[0]["last_output"]),
        "busy_seconds": float(counters["busy_seconds"]),
        "preemptions": int(counters["preemptions"]),
        "empty_schedules": int(counters["empty_schedules"]),
        "evicted_cached_blocks": int(counters["evicted_blocks"]),
    }
