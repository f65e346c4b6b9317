"""The result of a run: arrays of its requests, and frames on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from polars import selectors as cs

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.simulate.kernel import tables as k
from driftwatch.simulate.kernel.tables import FINISHED, Tables

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


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The result of a run; arrays are in the order of the requests.

    In the arrays inf = not yet, or never. Read the frames before the engine runs on.
    """

    now_seconds: float  # end of the run; inf = it ran until no request was left
    # arrival_seconds, first_scheduled_seconds, first_token_seconds: of each request
    arrival_seconds: Floats
    first_scheduled_seconds: Floats
    first_token_seconds: Floats
    end_seconds: Floats  # when each finished, was turned away, cancelled or timed out
    generation_tokens: Integers  # requested ones, as far as max_model_len allows
    preemptions: Integers  # of each request
    finished: Flags  # requests that got their last token
    ended: Flags  # requests that finished, or ended without
    _tables: Tables
    _rows: Sequence[Any]  # the per-step table, each time it was read

    @classmethod
    def of(cls, t: Tables, until_seconds: float, rows: Sequence[Any]) -> Run:
        """The result of tables after a run to a time."""
        requests = t.requests
        return cls(
            float(until_seconds),
            arrival_seconds=requests["arrival"].copy(),
            first_scheduled_seconds=requests["first_scheduled"].copy(),
            first_token_seconds=requests["first_token"].copy(),
            end_seconds=requests["end"].copy(),
            generation_tokens=requests["target"] - requests["prompt"],
            preemptions=requests["preemptions"].copy(),
            finished=requests["status"] == FINISHED,
            ended=requests["status"] >= FINISHED,
            _tables=t,
            _rows=rows,
        )

    @property
    def requests(self) -> pl.DataFrame:
        """A row per request, in the order in which they were offered.

        index (position among all offered requests), status (finished, rejected, cancelled,
        timed_out, unfinished), arrival_seconds, first_scheduled_seconds, first_token_seconds,
        end_seconds (absolute), ttft_seconds, e2e_seconds, queue_seconds (from the arrival),
        prompt_tokens, generation_tokens (requested, as far as max_model_len allows),
        generated_tokens (delivered), cached_tokens (at the first admission), preemptions. Null
        where it never happened.
        """
        t, seconds, arrival = self._tables, cs.ends_with("_seconds"), pl.col("arrival_seconds")
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

    @property
    def steps(self) -> pl.DataFrame:
        """A row per step that ended; for ``per_step`` only.

        start_seconds, end_seconds and, taken after the schedule call and before its outputs,
        prefill_tokens, decode_seqs, kv_tokens_read, running, waiting, preempted, free_blocks (null
        where blocks never bind).
        """
        frame = pl.DataFrame(
            {name: np.concatenate([rows[name] for rows in self._rows]) for name in _STEP_COLUMNS}
        )
        if self._tables.engine[0]["total_blocks"] >= k.ENDLESS:
            frame = frame.with_columns(pl.lit(None, dtype=pl.Int64).alias("free_blocks"))
        return frame

    @property
    def scrapes(self) -> pl.DataFrame:
        """A row per scrape.

        time_seconds; gauges after the last step that ended: running, waiting_capacity,
        waiting_deferred (as the last schedule call left them: requests that arrive during a step
        are not in vLLM's scheduler yet), kv_cache_usage_ratio (null without a limit of blocks).
        All others count since the engine's start, histograms as lists of cumulative counts with
        +Inf last. As in vLLM, an iteration is observed when it brings a token, and a whole prompt
        is counted at its first token.
        """

        def cumulative(counts: Any) -> pl.Series:
            return pl.Series(np.cumsum(counts, axis=1)).arr.to_list()

        t, usage, names = self._tables, self.kv_cache_usage_ratio, k.COUNTERS.names or ()
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

    @property
    def summary(self) -> dict[str, float | int]:
        """The engine's totals so far."""
        counters = self._tables.counters[0]
        return {
            "steps": int(counters["steps_all"]),
            "end_seconds": float(self._tables.engine[0]["last_output"]),
            "busy_seconds": float(counters["busy_seconds"]),
            "preemptions": int(counters["preemptions"]),
            "empty_schedules": int(counters["empty_schedules"]),
            "evicted_cached_blocks": int(counters["evicted_blocks"]),
        }

    @property
    def waiting(self) -> Integers:
        """num_requests_waiting at each scrape."""
        return np.asarray(self.scraped("waiting_capacity") + self.scraped("waiting_deferred"))

    @property
    def kv_cache_usage_ratio(self) -> Floats | None:
        """At each scrape; None without a limit of blocks."""
        total = int(self._tables.engine[0]["total_blocks"])
        if total >= k.ENDLESS:
            return None
        return np.asarray(1.0 - self._tables.scraped["free_blocks"] / total)

    @property
    def itl_cells(self) -> Integers:
        """Inter-token times per cell (columns, the last above all edges) at each scrape (rows)."""
        return np.asarray(self._tables.scraped_itl)

    def scraped(self, name: str) -> npt.NDArray[Any]:
        """A gauge or counter at each scrape: a field of ``kernel.tables.COUNTERS``."""
        return np.asarray(self._tables.scraped[name])


def _delivered(t: Tables) -> Any:
    """Tokens that each client has got (``kernel.decoding.delivered``)."""
    rows = t.requests
    kind, final = rows["kind"], rows["final_step"]
    counted = (kind == k.LAZY) | ((kind == k.CLOSING) & (final != k.NONE))
    if not counted.any():
        return rows["output"].copy()
    steps = np.maximum(t.engine[0]["applied"] - rows["join_step"] + 2, 0)
    return np.where(counted, rows["join_computed"] + steps - rows["prompt"], rows["output"])
