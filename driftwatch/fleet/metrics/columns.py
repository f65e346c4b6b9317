"""From what an engine counts to what the pages of its server show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from driftwatch.fleet.metrics.engine import (
    REJECTED,
    UNFINISHED,
    Floats,
    Tally,
)
from driftwatch.fleet.metrics.families import GROUPS
from driftwatch.fleet.server import KindColumns, Server

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

    def shown(self, times: Floats, told: Mapping[str, Floats]) -> dict[str, Floats]:
        """Columns of the next scrapes."""
        style = self._server.style
        found = dict(told)
        found["waiting"] = told["waiting_capacity"] + told["waiting_deferred"]
        cached = told["prompt_tokens"] - told["prompt_tokens_computed"]
        found["prompt_tokens_cached"] = cached
        unit = self._server.configuration.block_size if style.prefix_in_blocks else 1
        found["prefix_queries"] = told["prefix_queries_tokens"] // unit
        found["prefix_hits"] = told["prefix_hits_tokens"] // unit
        found["itl_seconds"] = np.column_stack(
            [told["itl_seconds_buckets"], told["itl_seconds_sum"]]
        )
        sums = told["iteration_tokens_sum"] + (cached if style.cached_in_iteration else 0.0)
        found["iteration_tokens"] = np.column_stack([told["iteration_tokens_buckets"], sums])
        return self.kind.shown(times, found)


class HttpHistory:
    """What the HTTP middleware of a server process counts, over all its engines."""

    def __init__(self) -> None:
        self._told = np.zeros((0, 4))  # end, duration, bytes of the request, 1 = answered 503
        self._highr = Tally(GROUPS["http_highr"])
        self._by_handler = Tally(GROUPS["http_by_handler"])
        self._size = Tally(())
        self._response = Tally(())
        self._answers = np.zeros(2)

    def add(self, requests: pl.DataFrame) -> None:
        """Requests that ended; a client that left had its status 200 already."""
        ends = requests["end_seconds"].to_numpy()  # null is NaN
        status = requests["status"]
        ended = np.isfinite(ends) & (status != UNFINISHED).to_numpy()
        if not ended.any():
            return
        rows = np.column_stack(
            [
                ends,
                ends - requests["arrival_seconds"].to_numpy(),
                _REQUEST_BYTES + _BYTES_PER_TOKEN * requests["prompt_tokens"].to_numpy(),
                (status == REJECTED).to_numpy(),
            ]
        )
        if not ended.all():
            rows = rows[ended]
        both = np.concatenate([self._told, rows])
        self._told = both[np.argsort(both[:, 0], kind="stable")]

    def first(self, answered_5xx: bool, until: float) -> float | None:
        """When the first answer of a kind that was not taken yet came, up to ``until``."""
        which = (self._told[:, 3] == float(answered_5xx)) & (self._told[:, 0] <= until)
        return float(self._told[which, 0][0]) if which.any() else None

    def take(self, times: Floats) -> dict[str, Floats]:
        """Columns of the next scrapes."""
        count = int(np.searchsorted(self._told[:, 0], times[-1], side="right"))
        told, self._told = self._told[:count], self._told[count:]
        rows = np.searchsorted(times, told[:, 0], side="left")
        many = len(times)
        found = {
            "http_highr": self._highr.book(rows, told[:, 1], many),
            "http_by_handler": self._by_handler.book(rows, told[:, 1], many),
            "http_request_size": self._size.book(rows, told[:, 2], many),
            "http_response_size": self._response.book(rows, np.zeros(count), many),
        }
        for place, name in enumerate(("http_requests_2xx", "http_requests_5xx")):
            which = told[:, 3] == float(place)
            counts = np.bincount(rows[which], minlength=many).cumsum() + self._answers[place]
            self._answers[place] = counts[-1]
            found[name] = counts
        return found


def process_columns(
    started: float, times: Floats, engines: Sequence[Mapping[str, Floats]], answered: Floats
) -> dict[str, Floats]:
    """``process_*`` and ``python_*`` of the API server.

    Args:
        started: start of the process, unix seconds.
    """
    steady = np.ones(len(times))
    tokens = np.sum([engine["generation_tokens"] for engine in engines], axis=0)
    open_requests = np.sum([engine["running"] + engine["waiting"] for engine in engines], axis=0)
    resident = _RESIDENT_BYTES + _RESIDENT_PER_REQUEST_BYTES * answered
    found = {
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
        found[f"python_gc_objects_collected_{generation}"] = steady * _COLLECTED[generation]
        found[f"python_gc_objects_uncollectable_{generation}"] = steady * 0.0
        found[f"python_gc_collections_{generation}"] = at_start + np.floor(answered * per_request)
    return found
