"""The scrapes of a simulated server: what its engine counted, as rows of the scrape table.

Observations are made as vLLM 0.32 makes them (v1/metrics/loggers.py): step counters as the engine
counts them, time to first token at the first token, the rest of a request when it finishes. A
request that is cancelled, timed out or refused leaves only its time to first token.

The engine reports a request when it ends, so a scrape waits until every first token before it is
known. Their number is known at once: each output token is either a request's first (time to first
token) or follows another (inter-token latency).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.foreign import STATS_DISABLED
from driftwatch.collect.registry import BY_COLUMN, REGISTRY
from driftwatch.collect.schema import BUCKETS, SCRAPE_SCHEMA, TIME, empty_scrapes
from driftwatch.fleet.server import READY_AFTER_SECONDS, Server

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

REFUSED = "connection refused"
# prometheus_client makes a family's children one after the other, 21 of them before the counter of
# generated tokens, whose ``_created`` is read
_CHILDREN_BEFORE, _APART_SECONDS = 21, 1e-5

# column of the scrape table → the counter or gauge of the engine
_SCRAPED: Mapping[str, str] = {
    "running_requests": "running",
    "waiting_capacity_requests": "waiting_capacity",
    "waiting_deferred_requests": "waiting_deferred",
    "kv_cache_usage_ratio": "kv_cache_usage_ratio",
    "preemptions_total": "preemptions",
    "prompt_tokens_total": "prompt_tokens",
    "prompt_tokens_computed_total": "prompt_tokens_computed",
    "generation_tokens_total": "generation_tokens",
    "prefix_cache_queries_total": "prefix_queries_tokens",
    "prefix_cache_hits_total": "prefix_hits_tokens",
}
_OTHER_COUNTERS = ("itl_seconds_count", "rejected_reqs", "rejected_tokens")
# of clients that leave, KV transfers and external caches: the simulated server has none
_NEVER_COUNTED = (
    "aborted_requests_total",
    "prompt_tokens_transferred_total",
    "external_prefix_cache_hits_total",
)
_STEP_HISTOGRAMS = ("iteration_tokens", "itl_seconds")


# columns of ``Run.requests``; later waits, after a preemption, count as prefill or decode
_FINISHED = (
    *("end_seconds", "arrival_seconds", "first_scheduled_seconds", "first_token_seconds"),
    *("prompt_tokens", "generated_tokens"),
)
_END, _ARRIVAL, _SCHEDULED, _TOKEN, _PROMPT, _GENERATED = map(pl.col, _FINISHED)
_LATER = _GENERATED - 1.0  # tokens after the first
# histogram → the observations of finished requests
_AT_FINISH: Mapping[str, pl.Expr] = {
    "prompt_tokens": _PROMPT,
    "generation_tokens": _GENERATED,
    "tpot_seconds": pl.when(_LATER > 0).then((_END - _TOKEN) / _LATER).otherwise(0.0),
    "e2e_seconds": _END - _ARRIVAL,
    "queue_seconds": _SCHEDULED - _ARRIVAL,
    "prefill_seconds": _TOKEN - _SCHEDULED,
    "decode_seconds": _END - _TOKEN,
}
_AT_FIRST_TOKEN = "ttft_seconds"  # noqa: S105 - a column


class Tally:
    """A histogram that grows: cumulative at any number of times.

    ``edges``: finite, ascending; a value equal to an edge is in that edge's bucket.
    """

    def __init__(self, edges: tuple[float, ...]) -> None:
        self._edges = np.array(edges)
        self._counts = np.zeros(len(edges) + 1)
        self._sum = 0.0

    def book(self, rows: Rows, values: Floats, how_many: int) -> Floats:
        """Add observations, and return the histogram at each of the next times.

        ``rows``: (observations,) ascending, number of the first time at or after each; ``values``:
        (observations,) in their order. Returns (how_many, edges + 2): cumulative buckets with +Inf
        last, then the sum, which is added up in the order of the observations as in vLLM.
        """
        width = len(self._counts)
        cells = rows * width + np.searchsorted(self._edges, values)
        booked = np.bincount(cells, minlength=how_many * width)
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


def _nothing() -> Floats:
    return np.zeros(0)


def _none_finished() -> pl.DataFrame:
    return pl.DataFrame(schema=dict.fromkeys(_FINISHED, pl.Float64))


@dataclass(slots=True)
class EngineHistory:
    """One engine of a server process, from the start of the process on."""

    server: Server
    # added and not yet taken
    times: Floats = field(default_factory=_nothing)
    _scraped: dict[str, Floats] = field(default_factory=dict)
    _finished: pl.DataFrame = field(default_factory=_none_finished)  # by their end
    _first_tokens: Floats = field(default_factory=_nothing)
    _first_arrivals: Floats = field(default_factory=_nothing)
    # taken
    _first_tokens_taken: int = 0
    _finished_taken: int = 0
    _tallies: dict[str, Tally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        edges = self.server.edges()
        self._tallies = {
            name: Tally(edges[name] if BY_COLUMN[name].buckets else ())
            for name in (*_AT_FINISH, _AT_FIRST_TOKEN)
        }

    def add(self, requests: pl.DataFrame, scrapes: pl.DataFrame) -> None:
        """Add ended requests and scrapes; they follow those added before.

        Raises ValueError: scrapes before earlier ones, or buckets of other edges than the server's.
        """
        done = requests.filter(pl.col("status") == "finished").select(_FINISHED).cast(pl.Float64)
        self._finished = pl.concat([self._finished, done]).sort(_END, maintain_order=True)
        first = requests["first_token_seconds"].to_numpy()  # null is NaN
        has_token = ~np.isnan(first)
        tokens = np.concatenate([self._first_tokens, first[has_token]])
        arrivals = requests["arrival_seconds"].to_numpy()[has_token]
        arrivals = np.concatenate([self._first_arrivals, arrivals])
        order = np.argsort(tokens, kind="stable")
        self._first_tokens, self._first_arrivals = tokens[order], arrivals[order]
        if len(scrapes):
            self._add_scrapes(scrapes)

    def _add_scrapes(self, scrapes: pl.DataFrame) -> None:
        times = scrapes["time_seconds"].to_numpy()
        last = self.times[-1] if len(self.times) else -np.inf
        if times[0] <= last or (np.diff(times) <= 0).any():
            raise ValueError("scrapes must come in order, each time once")
        names = (*_SCRAPED.values(), *_OTHER_COUNTERS)
        new = {name: scrapes[name].cast(pl.Float64).to_numpy() for name in names}
        edges = self.server.edges()
        for name in _STEP_HISTOGRAMS:
            width = len(edges[name]) + 1
            buckets = scrapes[f"{name}_buckets"].explode().cast(pl.Float64).to_numpy()
            if len(buckets) != len(times) * width:
                raise ValueError(f"{name} was booked with other edges than the server's")
            sums = scrapes[f"{name}_sum"].cast(pl.Float64).to_numpy()
            new[name] = np.column_stack([buckets.reshape(len(times), width), sums])
        self.times = np.concatenate([self.times, times])
        before = self._scraped or {name: values[:0] for name, values in new.items()}
        self._scraped = {n: np.concatenate([before[n], values]) for n, values in new.items()}

    def ready(self) -> int:
        """How many scrapes, from the first on, have all their first tokens and can be taken.

        Raises ValueError: more requests have a first token than the engine counted.
        """
        if not len(self.times):
            return 0
        counted = np.searchsorted(self._first_tokens, self.times, side="right")
        had = self._scraped["generation_tokens"] - self._scraped["itl_seconds_count"]
        lacking = had - (counted + self._first_tokens_taken)
        if (lacking < 0).any():
            at = float(self.times[np.flatnonzero(lacking < 0)[0]])
            raise ValueError(
                f"by {at:g} s more requests have a first token than the engine's counters say "
                "(generation_tokens - itl_seconds_count)"
            )
        late = np.flatnonzero(lacking > 0)
        return int(late[0]) if len(late) else len(self.times)

    def take(self, how_many: int) -> dict[str, Floats]:
        """Columns of the scrape table for the first scrapes; they are removed here.

        Returns:
            numbers (how_many,), histograms (how_many, edges + 2): cumulative buckets, sum.
        """
        times = self.times[:how_many]
        now = {name: values[:how_many] for name, values in self._scraped.items()}
        columns = {column: now[name] for column, name in _SCRAPED.items()}
        columns |= {name: now[name] for name in _STEP_HISTOGRAMS}
        columns["rejected_requests_total"] = now["rejected_reqs"] + now["rejected_tokens"]
        waiting = columns["waiting_capacity_requests"] + columns["waiting_deferred_requests"]
        columns["waiting_requests"] = waiting
        columns["engine_awake"] = np.ones(how_many)
        columns |= dict.fromkeys(_NEVER_COUNTED, np.zeros(how_many))
        done = self._finished.filter(pl.col("end_seconds") <= times[-1])
        rows = np.searchsorted(times, done["end_seconds"], side="left")
        for column, values in _AT_FINISH.items():
            observed = done.select(values).to_series().to_numpy()
            columns[column] = self._tallies[column].book(rows, observed, how_many)
        first = int(np.searchsorted(self._first_tokens, times[-1], side="right"))
        tokens = self._first_tokens[:first]
        columns[_AT_FIRST_TOKEN] = self._tallies[_AT_FIRST_TOKEN].book(
            np.searchsorted(times, tokens, side="left"),
            tokens - self._first_arrivals[:first],
            how_many,
        )
        counts = np.bincount(rows, minlength=how_many).cumsum()
        columns["finished_requests_total"] = (counts + self._finished_taken).astype(np.float64)
        self._finished_taken += len(done)
        self._first_tokens_taken += first
        self._finished = self._finished[len(done) :]
        self._first_tokens = self._first_tokens[first:]
        self._first_arrivals = self._first_arrivals[first:]
        self.times = self.times[how_many:]
        self._scraped = {name: values[how_many:] for name, values in self._scraped.items()}
        return columns


class ServerScrapes:
    """The scrapes of one server, restarts included.

    ``epoch``: the wall time of second 0 of the simulation; ``started_seconds``: start of the first
    process on the simulation's clock; its metrics appear ``READY_AFTER_SECONDS`` later;
    ``without_buckets``, ``without_metrics``: names that the scrape configuration drops.
    Raises ImpossibleConfiguration: the server's settings are impossible.
    """

    def __init__(
        self,
        server: Server,
        epoch: datetime,
        started_seconds: float = -60.0,
        without_buckets: Sequence[str] = (),
        without_metrics: Sequence[str] = (),
    ) -> None:
        self._without_buckets, self._without_metrics = {*without_buckets}, {*without_metrics}
        self._epoch = epoch.astimezone(UTC)
        self._frames: list[pl.DataFrame] = []
        self.restart(server, started_seconds)

    def restart(self, server: Server, started_seconds: float) -> None:
        """The process ends and another one starts: every counter is 0 again.

        Requests that end after the last scrape of the old process are lost with it.

        Raises ImpossibleConfiguration: the new server's settings are impossible.
        """
        server.check()
        self.server = server
        self._started = self._epoch.timestamp() + started_seconds
        self._created = self._started + READY_AFTER_SECONDS
        for _ in range(_CHILDREN_BEFORE):
            self._created += _APART_SECONDS
        self._engine = EngineHistory(server)

    def add(self, requests: pl.DataFrame, scrapes: pl.DataFrame) -> None:
        """Add requests of the present process that ended since the last call, and scrapes.

        A scrape waits until the requests that had their first token by then have ended.

        Raises ValueError: times are out of order, or the engine's counters contradict its requests.
        """
        self._engine.add(requests, scrapes)
        if ready := self._engine.ready():
            times = self._engine.times[:ready]
            columns = self._engine.take(ready)
            if self.server.log_stats:
                self._frames.append(self._frame(times, columns))
            else:
                self._fail(times, STATS_DISABLED)

    def fail(self, scrape_seconds: Sequence[float] | Floats, why: str = REFUSED) -> None:
        """Add scrapes without an answer (before the restart that ends them, if there is one)."""
        self._fail(np.asarray(scrape_seconds, dtype=np.float64), f"no answer: {why}")

    def take(self) -> pl.DataFrame:
        """Every scrape that is ready, as rows of the scrape table; they are removed here."""
        every = pl.concat([empty_scrapes(), *self._frames])
        self._frames = []
        return every.sort("instance", "engine", "time", maintain_order=True).rechunk()

    def _fail(self, times: Floats, reason: str) -> None:
        self._frames.append(self._rows(times, {}).with_columns(ok=False, reason=pl.lit(reason)))

    def _rows(self, times: Floats, columns: Mapping[str, pl.Series | pl.Expr]) -> pl.DataFrame:
        """Rows of the scrape table; a column that is not given is NULL."""
        first = round(self._epoch.timestamp() * 1e6)
        micros = first + np.rint(times * 1e6).astype(np.int64)
        named = pl.DataFrame({"time": pl.Series(micros).cast(TIME)}).with_columns(
            instance=pl.lit(self.server.instance), engine=pl.lit("0"), **columns
        )
        return pl.concat([empty_scrapes(), named], how="diagonal").select(list(SCRAPE_SCHEMA))

    def _frame(self, times: Floats, numbers: dict[str, Floats]) -> pl.DataFrame:
        """The rows of pages with these numbers."""
        columns: dict[str, pl.Series | pl.Expr] = {
            "process_start_time_seconds": pl.lit(self._started),
            "created_seconds": pl.lit(self._created),
        }
        edges = self.server.edges()
        for name, values in numbers.items():
            if values.ndim == 1:
                columns[name] = pl.Series(values)
                continue
            counts, own = values[:, :-1], (*edges[name], np.inf)
            if BY_COLUMN[name].wire_name in self._without_buckets:
                counts, own = counts[:, -1:], own[-1:]
            columns |= {f"{name}_sum": pl.Series(values[:, -1])}
            columns |= {f"{name}_count": pl.Series(counts[:, -1])}
            if BY_COLUMN[name].buckets:
                lists = pl.Series(np.ascontiguousarray(counts)).arr.to_list()
                columns |= {f"{name}_buckets": lists}
                columns |= {f"{name}_edges": pl.lit(pl.Series([list(own)], dtype=BUCKETS)).first()}
        dropped = [m.column for m in REGISTRY if m.wire_name in self._without_metrics]
        for name in dropped:
            for part in (name, *(f"{name}_{p}" for p in ("sum", "count", "buckets", "edges"))):
                columns.pop(part, None)
        starts = ("process_start_time_seconds", "created_seconds")
        if "cache_config" not in dropped:
            columns["cache_config"] = pl.lit(self.server.cache_config())
        return self._rows(times, columns).with_columns(
            ok=True,
            model_name=pl.lit(self.server.model_name),
            several_api_servers=pl.lit(not any(name in columns for name in starts)),
        )
