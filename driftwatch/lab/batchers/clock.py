"""What the batchers share: the step-time model over arrays, and a request's fate as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.simulate.outcome import REQUEST_SCHEMA
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FINISHED, REJECTED, CANCELLED, TIMED_OUT = "finished", "rejected", "cancelled", "timed_out"
NOT_DEFINED = "not defined for continuous batching: no request waits for the longest of its batch"


@dataclass(frozen=True, slots=True, eq=False)
class Batched:
    """What a batcher did."""

    # a row a request in the order of the input, columns as ``Outcome.requests``
    requests: pl.DataFrame
    # of batchers that run to the longest member, a row a batch: start_seconds, end_seconds, size,
    # longest_generation_tokens, generated_tokens (computed for members, kept or not),
    # prompt_tokens, padded_prompt_tokens; None where it is not defined
    batches: pl.DataFrame | None
    steps: int  # steps of the engine
    busy_seconds: float  # their time
    # of it, in steps that computed only prompts, where that is known
    prefill_seconds: float | None = None

    @property
    def batch_efficiency_ratio(self) -> float | None:
        """Σ generated / Σ (batch × longest), 0 … 1; None where not defined (`NOT_DEFINED`)."""
        if self.batches is None or not self.batches.height:
            return None
        sizes = self.batches["size"].to_numpy()
        slots = sizes @ self.batches["longest_generation_tokens"].to_numpy()
        return float(self.batches["generated_tokens"].to_numpy().sum() / slots)

    @property
    def prompt_padding_waste_ratio(self) -> float | None:
        """Share of the prompt tokens computed that were padding; None where not defined."""
        if self.batches is None or not self.batches.height:
            return None
        padded = self.batches["padded_prompt_tokens"].to_numpy().sum()
        return float(1 - self.batches["prompt_tokens"].to_numpy().sum() / padded)


def step_seconds(
    step_time: StepTime,
    prefill_tokens: npt.ArrayLike,
    decode_seqs: npt.ArrayLike,
    kv_tokens_read: npt.ArrayLike,
    prefill_pairs: npt.ArrayLike = 0.0,
) -> Floats:
    """`StepTime.seconds` over arrays, seconds a step, to the bit the same."""
    prefill = np.asarray(prefill_tokens, dtype=np.float64)
    decoding = np.asarray(decode_seqs, dtype=np.float64)
    if step_time.capture_sizes:
        sizes = np.append(np.asarray(step_time.capture_sizes, dtype=np.float64), np.inf)
        up = sizes[np.searchsorted(sizes, decoding)]
        decoding = np.where((prefill == 0) & np.isfinite(up), up, decoding)
    return np.asarray(
        step_time.c0_seconds
        + step_time.c1_seconds_per_prefill_token * np.maximum(prefill - step_time.hinge_tokens, 0)
        + step_time.c2_seconds_per_decode_seq * decoding
        + step_time.c3_seconds_per_kv_token * np.asarray(kv_tokens_read, dtype=np.float64)
        + step_time.c4_seconds_per_prefill_pair * np.asarray(prefill_pairs, dtype=np.float64),
        dtype=np.float64,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What arrives at a batcher, and how its clients behave."""

    requests: Requests  # priorities, prefixes and adapters mean nothing to the classic batchers
    concurrency: int | None = None  # closed loop: so many inside; the next arrives when one ends
    timeout_seconds: float | None = None  # a client gives up so long after its arrival
    # whether a client that gave up is taken out at once, or served on for nobody
    free_given_up: bool = True


class Fates:
    """What became of each request, filled while a batcher runs."""

    def __init__(self, load: Load) -> None:
        requests = self.requests = load.requests
        count = len(requests)
        self.timeout_seconds = np.inf if load.timeout_seconds is None else load.timeout_seconds
        self.leavers = load.timeout_seconds is not None or bool(
            np.isfinite(requests.cancel_seconds).any()
        )  # whether anyone may give up
        self.closed = load.concurrency is not None
        self.sent = count if load.concurrency is None else min(count, load.concurrency)
        self.arrival: Floats = requests.arrival_seconds.copy()
        self.first_scheduled: Floats = np.full(count, np.nan)
        self.first_token: Floats = np.full(count, np.nan)
        self.end: Floats = np.full(count, np.nan)
        self.generated: Integers = np.zeros(count, dtype=np.int64)
        self.status: list[str] = [FINISHED] * count

    def send_next(self, seconds: float) -> int | None:
        """Closed loop: a client that has its end sends the next request, which is returned."""
        if not self.closed or self.sent >= len(self.arrival):
            return None
        self.arrival[self.sent] = seconds
        self.sent += 1
        return self.sent - 1

    def cancels(self, index: int) -> float:
        """When the client cancels: in a closed loop so long after it came as in its log."""
        cancel, arrival = float(self.requests.cancel_seconds[index]), float(self.arrival[index])
        logged = float(self.requests.arrival_seconds[index])
        return cancel if arrival == logged else arrival + (cancel - logged)

    def gives_up(self, index: int) -> float:
        """When the client leaves, if it is not answered before."""
        late = float(self.arrival[index]) + self.timeout_seconds
        return min(self.cancels(index), late)

    def leave(self, index: int, seconds: float) -> None:
        """The client gave up."""
        late = float(self.arrival[index]) + self.timeout_seconds
        cancelled = self.cancels(index) <= late
        self.status[index] = CANCELLED if cancelled else TIMED_OUT
        self.end[index] = seconds

    def table(self) -> pl.DataFrame:
        """The columns of ``Outcome.requests``."""
        requests = self.requests
        count = len(requests)
        return pl.DataFrame(
            {
                "index": np.arange(count, dtype=np.int64),
                "status": self.status,
                "arrival_seconds": self.arrival,
                "first_scheduled_seconds": self.first_scheduled,
                "first_token_seconds": self.first_token,
                "end_seconds": self.end,
                "ttft_seconds": self.first_token - self.arrival,
                "e2e_seconds": self.end - self.arrival,
                "queue_seconds": self.first_scheduled - self.arrival,
                "prompt_tokens": requests.prompt_tokens,
                "generation_tokens": requests.generation_tokens,
                "generated_tokens": self.generated,
                "cached_tokens": np.zeros(count, dtype=np.int64),
                "preemptions": np.zeros(count, dtype=np.int64),
                "priority": requests.priority,
            },
            schema=REQUEST_SCHEMA,
        ).with_columns(pl.col(pl.Float64).fill_nan(None))
