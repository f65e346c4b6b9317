"""One engine's metrics as they grow: step counters as the engine tells them, requests booked.

A scrape can be told once every first token before it is known; the engine tells of a request
when it ends. How many first tokens there were is known at once: each output token is either a
request's first (time to first token) or follows another (inter-token latency).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.fleet.server import Server
from driftwatch.simulate.outcome import Outcome

_GAUGES = ("running", "waiting_capacity", "waiting_deferred", "kv_cache_usage_ratio")
_COUNTERS = (
    "steps_observed",
    "preemptions",
    "prompt_tokens",
    "prompt_tokens_computed",
    "generation_tokens",
    "rejected_reqs",
    "rejected_tokens",
)
_SCRAPED = (
    *_GAUGES,
    *_COUNTERS,
    "prefix_queries_tokens",
    "prefix_hits_tokens",
    "iteration_tokens_sum",
    "itl_seconds_sum",
    "itl_seconds_count",
)


@dataclass(slots=True)
class _Pending:
    """What was told and not yet taken."""

    times: Floats = field(default_factory=lambda: np.zeros(0))
    scraped: dict[str, Floats] = field(default_factory=dict)
    finished: Finished = field(default_factory=lambda: no_finished())
    first_tokens: Floats = field(default_factory=lambda: np.zeros(0))
    first_arrivals: Floats = field(default_factory=lambda: np.zeros(0))


class EngineHistory:
    """One engine of a server process, from the start of the process on."""

    def __init__(self, server: Server) -> None:
        self._server = server
        edges = server.finite_edges()
        self._tallies = {
            family.columns[0]: Tally(edges[family.name])
            for family in server.style.families
            if family.type == "histogram"
            and family.columns[0] in (*OBSERVED_AT_FINISH, OBSERVED_AT_FIRST_TOKEN)
        }
        self._edges = {
            "iteration_tokens": server.iteration_tokens_edges,
            "itl_seconds": server.itl_edges,
        }
        self._pending = _Pending()
        self._first_tokens_taken = 0
        self._finished_taken = np.zeros(2)  # stop, length

    def add(self, outcome: Outcome) -> None:
        """What ended, and scrapes, after everything that was added before.

        Raises:
            ValueError: scrapes before earlier ones, or buckets of other edges than the server's.
        """
        pending, requests = self._pending, outcome.requests
        max_tokens = self._max_tokens(requests)
        pending.finished = pending.finished.followed_by(finished_of(requests, max_tokens))
        first = requests["first_token_seconds"].to_numpy()  # null is NaN
        has_token = ~np.isnan(first)
        tokens = np.concatenate([pending.first_tokens, first[has_token]])
        arrivals = np.concatenate(
            [pending.first_arrivals, requests["arrival_seconds"].to_numpy()[has_token]]
        )
        order = np.argsort(tokens, kind="stable")
        pending.first_tokens, pending.first_arrivals = tokens[order], arrivals[order]
        if outcome.scrapes is not None and len(outcome.scrapes):
            self._scraped(outcome.scrapes)

    def _max_tokens(self, requests: pl.DataFrame) -> Floats:
        max_tokens = np.asarray(requests["generation_tokens"].to_numpy(), dtype=np.float64)
        length = self._server.configuration.max_model_len
        room = np.inf if length is None else length - requests["prompt_tokens"].to_numpy()
        return np.asarray(np.minimum(max_tokens, room), dtype=np.float64)

    def _scraped(self, scrapes: pl.DataFrame) -> None:
        pending = self._pending
        times = scrapes["time_seconds"].to_numpy()
        last = pending.times[-1] if len(pending.times) else -np.inf
        if times[0] <= last or (np.diff(times) <= 0).any():
            raise ValueError("scrapes must come in order, each time once")
        new = {name: scrapes[name].cast(pl.Float64).to_numpy() for name in _SCRAPED}
        for name, edges in self._edges.items():
            buckets = scrapes[f"{name}_buckets"].explode().cast(pl.Float64).to_numpy()
            if len(buckets) != len(times) * (len(edges) + 1):
                raise ValueError(
                    f"{name} was booked with other edges than the {len(edges)} of "
                    f"vLLM {self._server.style.version}"
                )
            new[f"{name}_buckets"] = buckets.reshape(len(times), len(edges) + 1)
        pending.times = np.concatenate([pending.times, times])
        for name, values in new.items():
            before = pending.scraped.get(name)
            pending.scraped[name] = values if before is None else np.concatenate([before, values])

    @property
    def times(self) -> Floats:
        """Scrapes that were not taken yet."""
        return self._pending.times

    def ready(self) -> int:
        """How many scrapes, from the first on, can be taken: those whose first tokens are known.

        Raises:
            ValueError: more requests have a first token than the engine counted.
        """
        pending = self._pending
        if not len(pending.times):
            return 0
        counted = np.searchsorted(pending.first_tokens, pending.times, side="right")
        had = pending.scraped["generation_tokens"] - pending.scraped["itl_seconds_count"]
        lacking = had - (counted + self._first_tokens_taken)
        if (lacking < 0).any():
            at = float(pending.times[np.flatnonzero(lacking < 0)[0]])
            raise ValueError(
                f"by {at:g} s more requests have a first token than the engine's counters say "
                "(generation_tokens - itl_seconds_count)"
            )
        late = np.flatnonzero(lacking > 0)
        return int(late[0]) if len(late) else len(pending.times)

    def take(self, how_many: int) -> dict[str, Floats]:
        """Columns of the first scrapes, which are then forgotten.

        Returns:
            scalars (how_many,), histograms (how_many, edges + 2): cumulative buckets, sum.
        """
        pending, server = self._pending, self._server
        times = pending.times[:how_many]
        columns = {name: values[:how_many] for name, values in pending.scraped.items()}
        until = times[-1]
        ended = int(np.searchsorted(pending.finished.end, until, side="right"))
        done = pending.finished.take(slice(0, ended))
        rows = np.searchsorted(times, done.end, side="left")
        for column, values in OBSERVED_AT_FINISH.items():
            if column in self._tallies:
                columns[column] = self._tallies[column].book(rows, values(done), how_many)
        first = int(np.searchsorted(pending.first_tokens, until, side="right"))
        tokens = pending.first_tokens[:first]
        columns[OBSERVED_AT_FIRST_TOKEN] = self._tallies[OBSERVED_AT_FIRST_TOKEN].book(
            np.searchsorted(times, tokens, side="left"),
            tokens - pending.first_arrivals[:first],
            how_many,
        )
        by_length = done.generated >= done.max_tokens
        length = server.configuration.max_model_len
        if length is not None:
            by_length |= done.prompt + done.generated >= length
        for place, (name, which) in enumerate(
            (("finished_stop", ~by_length), ("finished_length", by_length))
        ):
            counts = np.bincount(rows[which], minlength=how_many).cumsum()
            columns[name] = counts + self._finished_taken[place]
            self._finished_taken[place] = columns[name][-1]
        self._first_tokens_taken += first
        pending.finished = pending.finished.take(slice(ended, None))
        pending.first_tokens = pending.first_tokens[first:]
        pending.first_arrivals = pending.first_arrivals[first:]
        pending.times = pending.times[how_many:]
        pending.scraped = {name: values[how_many:] for name, values in pending.scraped.items()}
        return columns


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
OBSERVED_AT_FINISH: Mapping[str, Callable[[Finished], Floats]] = {
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
        max_tokens=max_tokens[which],
        cached=column("cached_tokens"),
        preemptions=column("preemptions"),
    )
