"""When vLLM books what of a request, for many requests at once.

vLLM 0.32 (``v1/metrics/stats.py``, ``loggers.py``; measured on a real server): time to first
token when the first token arrives, everything else of a request when it finishes. A request that
its client gives up is never observed, except for a first token that it had; one that was turned
away only counts as a rejection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

FINISHED, REJECTED, UNFINISHED = "finished", "rejected", "unfinished"


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """Finished requests, sorted by their end; arrays of one length."""

    end: Floats  # when, seconds on the simulation's clock, as all times
    arrival: Floats  # at the server
    first_scheduled: Floats  # first time in a step
    first_token: Floats  # first output
    prompt: Floats  # tokens
    generated: Floats  # tokens
    asked: Floats  # ``max_tokens`` of the request
    cached: Floats  # prompt tokens found in the cache at the first admission
    preemptions: Floats  # how often it was preempted

    def take(self, which: npt.NDArray[np.intp] | slice) -> Finished:
        """Some of them."""
        return Finished(*(getattr(self, f.name)[which] for f in fields(self)))

    def followed_by(self, others: Finished) -> Finished:
        """Both, sorted by their end; equal ends keep their order."""
        order = np.argsort(np.concatenate([self.end, others.end]), kind="stable")
        return Finished(
            *(
                np.concatenate([getattr(self, f.name), getattr(others, f.name)])[order]
                for f in fields(self)
            )
        )


def no_finished() -> Finished:
    """None at all."""
    return Finished(*(np.zeros(0) for _ in fields(Finished)))


def _tpot(f: Finished) -> Floats:
    """Mean time per output token after the first; 0 where there is only one."""
    intervals = f.generated - 1.0
    decode = f.end - f.first_token
    return np.divide(decode, intervals, out=np.zeros_like(decode), where=intervals > 0)


# what a finished request adds to each histogram column
OBSERVED_AT_FINISH: Mapping[str, Callable[[Finished], Floats]] = {
    "request_prompt_tokens": lambda f: f.prompt,
    "request_generation_tokens": lambda f: f.generated,
    "request_max_num_generation_tokens": lambda f: f.generated,
    "request_params_n": lambda f: np.ones_like(f.end),
    "request_params_best_of": lambda f: np.ones_like(f.end),
    "request_params_max_tokens": lambda f: f.asked,
    "request_num_preemptions": lambda f: f.preemptions,
    "request_prefill_kv_computed_tokens": lambda f: f.prompt - f.cached,
    "tpot_seconds": _tpot,
    "e2e_seconds": lambda f: f.end - f.arrival,
    "queue_seconds": lambda f: f.first_scheduled - f.arrival,
    "inference_seconds": lambda f: f.end - f.first_scheduled,
    "prefill_seconds": lambda f: f.first_token - f.first_scheduled,
    "decode_seconds": lambda f: f.end - f.first_token,
}
OBSERVED_AT_FIRST_TOKEN = "ttft_seconds"  # noqa: S105 - a column


class Tally:
    """One histogram as it grows: cumulative at any number of times.

    Args:
        edges: finite, ascending, at most 255; a value equal to an edge is in that edge's bucket.
    """

    def __init__(self, edges: tuple[float, ...]) -> None:
        self._edges = np.array(edges)
        self._counts = np.zeros(len(edges) + 1)
        self._sum = 0.0

    def book(self, rows: Rows, values: Floats, how_many: int) -> Floats:
        """Add observations and tell the histogram after each of the next times.

        Args:
            rows: (observations,) ascending; number of the first time that sees it.
            values: (observations,) in the order in which they are made.

        Returns:
            (how_many, edges + 2): cumulative buckets with +Inf last, then the sum, which is
            added up in the order of the observations as vLLM does.
        """
        width = len(self._counts)
        told = np.bincount(rows * width + self._buckets(values), minlength=how_many * width)
        counts = told.reshape(how_many, width).cumsum(axis=0) + self._counts
        sums = np.concatenate([[self._sum], values]).cumsum()
        until = np.searchsorted(rows, np.arange(how_many), side="right")
        found = np.empty((how_many, width + 1))
        np.cumsum(counts, axis=1, out=found[:, :-1])
        found[:, -1] = sums[until]
        if how_many:
            self._counts = counts[-1]
            self._sum = float(sums[-1])
        return found

    def _buckets(self, values: Floats) -> npt.NDArray[np.uint8]:
        """How many edges each value is above: few edges, so faster than searching each value."""
        found = np.zeros(len(values), dtype=np.uint8)
        above = np.empty(len(values), dtype=np.bool_)
        for edge in self._edges:
            np.greater(values, edge, out=above)
            found += above.view(np.uint8)
        return found


def finished_of(requests: pl.DataFrame, asked: Floats) -> Finished:
    """The finished ones of ended requests, in their order.

    Args:
        asked: (requests,) ``max_tokens`` of each.
    """
    finished = (requests["status"] == FINISHED).to_numpy()
    which = slice(None) if finished.all() else finished

    def column(name: str) -> Floats:
        return np.asarray(requests[name].to_numpy()[which], dtype=np.float64)

    return Finished(
        end=column("end_seconds"),
        arrival=column("arrival_seconds"),
        first_scheduled=column("first_scheduled_seconds"),
        first_token=column("first_token_seconds"),
        prompt=column("prompt_tokens"),
        generated=column("generated_tokens"),
        asked=asked[which],
        cached=column("cached_tokens"),
        preemptions=column("preemptions"),
    )
