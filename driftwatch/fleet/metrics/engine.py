"""One engine's metrics as they grow: step counters as the engine tells them, requests booked.

A scrape can be told once every first token before it is known; the engine tells of a request
when it ends. How many first tokens there were is known at once: each output token is either a
request's first (time to first token) or follows another (inter-token latency).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.fleet.server import Server
from driftwatch.simulate.outcome import Outcome
from driftwatch.simulate.request_histograms import (
    AT_FINISH,
    AT_FIRST_TOKEN,
    Finished,
    Tally,
    finished_of,
    no_finished,
)

Floats = npt.NDArray[np.float64]

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
            if family.type == "histogram" and family.columns[0] in (*AT_FINISH, AT_FIRST_TOKEN)
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

        Raises ValueError: scrapes before earlier ones, or buckets of other edges than the server's.
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

        Raises ValueError: more requests have a first token than the engine counted.
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
        for column, values in AT_FINISH.items():
            if column in self._tallies:
                columns[column] = self._tallies[column].book(rows, values(done), how_many)
        first = int(np.searchsorted(pending.first_tokens, until, side="right"))
        tokens = pending.first_tokens[:first]
        columns[AT_FIRST_TOKEN] = self._tallies[AT_FIRST_TOKEN].book(
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
