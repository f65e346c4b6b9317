"""vLLM's per-request histograms of a simulated server, as they grow from scrape to scrape.

Booked as vLLM 0.32 does (v1/metrics/loggers.py): time to first token when the first token is out,
everything else when the request finishes; a request that is cancelled, timed out or refused
leaves no observation but its time to first token. Queue time is that until the first schedule;
what a preempted request waits again is in its prefill and decode time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.simulate.requests import Floats

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """Finished requests, sorted by their end; arrays of one length."""

    end: Floats  # when, seconds on the simulation's clock, as all times
    arrival: Floats  # at the server
    first_scheduled: Floats  # first time in a step
    first_token: Floats  # first output
    prompt: Floats  # tokens
    generated: Floats  # tokens
    max_tokens: Floats  # ``max_tokens`` of the request
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
AT_FINISH: Mapping[str, Callable[[Finished], Floats]] = {
    "request_prompt_tokens": lambda f: f.prompt,
    "request_generation_tokens": lambda f: f.generated,
    "request_max_num_generation_tokens": lambda f: f.generated,
    "request_params_n": lambda f: np.ones_like(f.end),
    "request_params_max_tokens": lambda f: f.max_tokens,
    "request_num_preemptions": lambda f: f.preemptions,
    "request_prefill_kv_computed_tokens": lambda f: f.prompt - f.cached,
    "tpot_seconds": _tpot,
    "e2e_seconds": lambda f: f.end - f.arrival,
    "queue_seconds": lambda f: f.first_scheduled - f.arrival,
    "inference_seconds": lambda f: f.end - f.first_scheduled,
    "prefill_seconds": lambda f: f.first_token - f.first_scheduled,
    "decode_seconds": lambda f: f.end - f.first_token,
}
AT_FIRST_TOKEN = "ttft_seconds"  # noqa: S105 - a column


class Tally:
    """One histogram as it grows: cumulative at any number of times.

    ``edges``: finite, ascending, at most 255; a value equal to an edge is in that edge's bucket.
    """

    def __init__(self, edges: tuple[float, ...]) -> None:
        self._edges = np.array(edges)
        self._counts = np.zeros(len(edges) + 1)
        self._sum = 0.0

    def book(self, rows: Rows, values: Floats, how_many: int) -> Floats:
        """Add observations and tell the histogram after each of the next times.

        ``rows``: (observations,) ascending; number of the first time that sees it; ``values``:
        (observations,) in the order in which they are made. Returns (how_many, edges + 2):
        cumulative buckets with +Inf last, then the sum, which is added up in the order of the
        observations as vLLM does.
        """
        width = len(self._counts)
        booked = np.bincount(rows * width + self._buckets(values), minlength=how_many * width)
        counts = booked.reshape(how_many, width).cumsum(axis=0) + self._counts
        sums = np.concatenate([[self._sum], values]).cumsum()
        until = np.searchsorted(rows, np.arange(how_many), side="right")
        table = np.empty((how_many, width + 1))
        np.cumsum(counts, axis=1, out=table[:, :-1])
        table[:, -1] = sums[until]
        if how_many:
            self._counts = counts[-1]
            self._sum = float(sums[-1])
        return table

    def _buckets(self, values: Floats) -> npt.NDArray[np.uint8]:
        """How many edges each value is above: few edges, so faster than searching each value."""
        buckets = np.zeros(len(values), dtype=np.uint8)
        above = np.empty(len(values), dtype=np.bool_)
        for edge in self._edges:
            np.greater(values, edge, out=above)
            buckets += above.view(np.uint8)
        return buckets


def finished_of(requests: pl.DataFrame, max_tokens: Floats) -> Finished:
    """The finished ones of ended requests, in their order; ``max_tokens``: (requests,)."""
    finished = (requests["status"] == "finished").to_numpy()
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
        max_tokens=max_tokens[which],
        cached=column("cached_tokens"),
        preemptions=column("preemptions"),
    )
