"""From what an engine counts to what the pages of its server show."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from driftwatch.fleet.metrics.engine import Floats
from driftwatch.fleet.metrics.families import GROUPS
from driftwatch.fleet.server import KindColumns, Server
from driftwatch.simulate.request_histograms import Tally

# The API server's process, as the recorded pages show it before and after 8,227 requests.
_CPU_AT_START_SECONDS = 6.5
_CPU_PER_TOKEN_SECONDS = 5.6e-5
_VIRTUAL_BYTES = 1.845030912e9
_RESIDENT_BYTES = 6.75213312e8
_RESIDENT_PER_REQUEST_BYTES = 770.0
_PAGE_BYTES = 4096.0
_OPEN_FILES = 34.0
_MOST_FILES = 20000.0
_COLLECTED = (15063.0, 2469.0, 639.0)
_COLLECTIONS = ((1601.0, 0.0872), (146.0, 0.0079), (10.0, 2.4e-4))  # at start, per request

# What a client sends: 4 bytes of text a token beside the rest of the JSON; assumed, as nothing
# on vLLM's page says it. Answers are streamed, and a stream has no Content-Length.
_REQUEST_BYTES, _BYTES_PER_TOKEN = 200.0, 4.0


class EngineColumns:
    """One engine's columns of the page, from its counters."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.kind = KindColumns(server.kind)

    def page_columns(
        self, times: Floats, engine_columns: Mapping[str, Floats]
    ) -> dict[str, Floats]:
        """Columns of the next scrapes."""
        style = self._server.style
        columns = dict(engine_columns)
        columns["waiting"] = engine_columns["waiting_capacity"] + engine_columns["waiting_deferred"]
        cached = engine_columns["prompt_tokens"] - engine_columns["prompt_tokens_computed"]
        columns["prompt_tokens_cached"] = cached
        unit = self._server.configuration.block_size if style.prefix_in_blocks else 1
        columns["prefix_queries"] = engine_columns["prefix_queries_tokens"] // unit
        columns["prefix_hits"] = engine_columns["prefix_hits_tokens"] // unit
        columns["itl_seconds"] = np.column_stack(
            [engine_columns["itl_seconds_buckets"], engine_columns["itl_seconds_sum"]]
        )
        sums = engine_columns["iteration_tokens_sum"] + (
            cached if style.cached_in_iteration else 0.0
        )
        columns["iteration_tokens"] = np.column_stack(
            [engine_columns["iteration_tokens_buckets"], sums]
        )
        return self.kind.page_columns(times, columns)


class HttpHistory:
    """What the HTTP middleware of a server process counts, over all its engines."""

    def __init__(self) -> None:
        self._ended = np.zeros((0, 4))  # end, duration, bytes of the request, 1 = answered 503
        self._highr = Tally(GROUPS["http_highr"])
        self._by_handler = Tally(GROUPS["http_by_handler"])
        self._size = Tally(())
        self._response = Tally(())
        self._answers = np.zeros(2)

    def add(self, requests: pl.DataFrame) -> None:
        """Requests that ended; a client that left had its status 200 already."""
        ends = requests["end_seconds"].to_numpy()  # null is NaN
        status = requests["status"]
        ended = np.isfinite(ends) & (status != "unfinished").to_numpy()
        if not ended.any():
            return
        rows = np.column_stack(
            [
                ends,
                ends - requests["arrival_seconds"].to_numpy(),
                _REQUEST_BYTES + _BYTES_PER_TOKEN * requests["prompt_tokens"].to_numpy(),
                (status == "rejected").to_numpy(),
            ]
        )
        if not ended.all():
            rows = rows[ended]
        both = np.concatenate([self._ended, rows])
        self._ended = both[np.argsort(both[:, 0], kind="stable")]

    def first(self, answered_5xx: bool, until: float) -> float | None:
        """When the first answer of a kind that was not taken yet came, up to ``until``."""
        which = (self._ended[:, 3] == float(answered_5xx)) & (self._ended[:, 0] <= until)
        return float(self._ended[which, 0][0]) if which.any() else None

    def take(self, times: Floats) -> dict[str, Floats]:
        """Columns of the next scrapes."""
        count = int(np.searchsorted(self._ended[:, 0], times[-1], side="right"))
        ended, self._ended = self._ended[:count], self._ended[count:]
        rows = np.searchsorted(times, ended[:, 0], side="left")
        many = len(times)
        columns = {
            "http_highr": self._highr.book(rows, ended[:, 1], many),
            "http_by_handler": self._by_handler.book(rows, ended[:, 1], many),
            "http_request_size": self._size.book(rows, ended[:, 2], many),
            "http_response_size": self._response.book(rows, np.zeros(count), many),
        }
        for place, name in enumerate(("http_requests_2xx", "http_requests_5xx")):
            which = ended[:, 3] == float(place)
            counts = np.bincount(rows[which], minlength=many).cumsum() + self._answers[place]
            self._answers[place] = counts[-1]
            columns[name] = counts
        return columns


def process_columns(
    started: float, times: Floats, engine: Mapping[str, Floats], answer_counts: Floats
) -> dict[str, Floats]:
    """``process_*`` and ``python_*`` of the API server.

    ``started``: start of the process, unix seconds.
    """
    steady = np.ones(len(times))
    tokens = engine["generation_tokens"]
    open_requests = engine["running"] + engine["waiting"]
    resident = _RESIDENT_BYTES + _RESIDENT_PER_REQUEST_BYTES * answer_counts
    columns = {
        "python_info": steady,
        "process_virtual_memory_bytes": steady * _VIRTUAL_BYTES,
        "process_resident_memory_bytes": resident // _PAGE_BYTES * _PAGE_BYTES,
        "process_start_time_seconds": steady * started,
        "process_cpu_seconds": np.round(_CPU_AT_START_SECONDS + _CPU_PER_TOKEN_SECONDS * tokens, 2),
        "process_open_fds": _OPEN_FILES + open_requests,
        "process_max_fds": steady * _MOST_FILES,
    }
    for generation in range(3):
        at_start, per_request = _COLLECTIONS[generation]
        columns[f"python_gc_objects_collected_{generation}"] = steady * _COLLECTED[generation]
        columns[f"python_gc_objects_uncollectable_{generation}"] = steady * 0.0
        columns[f"python_gc_collections_{generation}"] = at_start + np.floor(
            answer_counts * per_request
        )
    return columns
