"""ServeGen: production traffic as a sum of clients, each with its own rates and lengths.

Two tables (Xiang et al., "ServeGen", arXiv 2505.09999): rates (client, start_seconds,
requests_per_second, arrival_cv; windows of 10 minutes) and lengths (client, start_seconds,
kind = prompt | generation, tokens, probability; a distribution each 6 hours). In each window a
client sends as many requests as recorded, at the ends of Gamma gaps of its CV. The gaps are scaled
to fill the window, so bursts stay bursts and the rate stays the recorded one. Prompt and generation
of a request are drawn independently: the tables have no joint distribution.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from driftwatch.arrays import Floats, Integers
from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Requests, make_requests

WINDOW_SECONDS = 600
EPOCH_SECONDS = 6 * 3600
KINDS = ("prompt", "generation")
# Recorded CVs reach 797; from 10 on all requests of a window are one burst.
CV_CAP = 10.0
_KEY = 1 << 40  # epochs are below it: 34,000 years
_WINDOWS: Mapping[str, pl.DataType] = {"client": pl.Int64(), "start_seconds": pl.Int64()}
_RATES: Mapping[str, pl.DataType] = {
    **_WINDOWS,
    "requests_per_second": pl.Float64(),
    "arrival_cv": pl.Float64(),
}
_LENGTHS: Mapping[str, pl.DataType] = {
    **_WINDOWS,
    **{"kind": pl.String(), "tokens": pl.Int64(), "probability": pl.Float64()},
}


@dataclass(frozen=True, slots=True, eq=False)
class _Lengths:
    """Distributions of tokens of one kind, by client and epoch of 6 hours."""

    clients: frozenset[int]
    keys: Integers  # (client, epoch) as one sorted number, one a distribution
    # cumulative probabilities plus the number of their distribution: one search finds a length in
    # any of them
    rises: Floats
    tokens: Integers  # of each

    def draw(self, client: Integers, epoch: Integers, rng: np.random.Generator) -> Integers:
        """A length for each (client, epoch).

        A client without a distribution for an epoch gets the one before, else its first.
        """
        which = np.searchsorted(self.keys, client * _KEY + epoch, side="right") - 1
        of_client = np.where(which >= 0, self.keys[which] // _KEY, -1) == client
        which = np.where(of_client, which, which + 1)
        cells = np.searchsorted(self.rises, which + rng.random(len(which)), side="right")
        return self.tokens[cells]


def read_lengths(path: Path) -> dict[str, _Lengths]:
    """The table of lengths by kind; a length of 0 counts as 1: a request has at least one token.

    Raises WorkloadError: the file cannot be read, or lacks a column.
    """
    kind, chance = pl.col("kind"), pl.col("probability")
    table = _table(path, _LENGTHS)
    return {one: _of_kind(table.filter((kind == one) & (chance > 0))) for one in KINDS}


def _of_kind(table: pl.DataFrame) -> _Lengths:
    table = table.sort("client", "start_seconds", "tokens")
    key = table["client"].to_numpy() * _KEY + table["start_seconds"].to_numpy()
    keys, first, number = np.unique(key, return_index=True, return_inverse=True)
    weight = table["probability"].to_numpy()
    total = np.add.reduceat(weight, first) if len(first) else np.zeros(0)
    sums = np.cumsum(weight)
    share = (sums - (sums[first] - weight[first])[number]) / total[number]
    share[np.append(first[1:], len(share)) - 1] = 1.0  # against rounding
    return _Lengths(
        frozenset(table["client"].to_list()),
        keys,
        number + share,
        np.maximum(table["tokens"].to_numpy(), 1),
    )


def _table(path: Path, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    try:
        table = pl.read_parquet(path, columns=list(columns), glob=False)
        return table.cast(columns)  # type: ignore[arg-type]
    except (OSError, pl.exceptions.PolarsError) as error:
        raise WorkloadError(
            (f"{path}: no Parquet file with ServeGen's columns ({error})".splitlines()[0],),
            help_text=f"columns are {', '.join(columns)}",
        ) from error


class ServeGen:
    """The clients of one model class.

    Attributes:
        clients: those with lengths, sorted.
        missing: starts of windows without any row: no data, rather than no requests.

    Raises:
        WorkloadError: a table cannot be read, or lacks a column.
    """

    def __init__(self, rates_path: Path | str, lengths_path: Path | str) -> None:
        rates = _table(Path(rates_path), _RATES)
        self._lengths = read_lengths(Path(lengths_path))
        both = frozenset.intersection(*(one.clients for one in self._lengths.values()))
        starts = rates["start_seconds"].unique().sort().to_numpy()
        whole = np.arange(starts[0], starts[-1] + 1, WINDOW_SECONDS)
        self.missing: Integers = np.setdiff1d(whole, starts)
        self.start_seconds = float(starts[0])
        self.end_seconds = float(starts[-1] + WINDOW_SECONDS)
        rates = rates.filter(pl.col("client").is_in(list(both))).sort("start_seconds", "client")
        if not rates.height:
            raise WorkloadError((f"{lengths_path}: no client of {rates_path} has lengths",))
        self.clients: tuple[int, ...] = tuple(rates["client"].unique().sort().to_list())
        self._client, self._start = rates["client"].to_numpy(), rates["start_seconds"].to_numpy()
        self._rate = rates["requests_per_second"].to_numpy()
        self._cv = np.minimum(rates["arrival_cv"].to_numpy(), CV_CAP)

    def requests(
        self,
        from_seconds: float,
        to_seconds: float,
        rng: np.random.Generator,
        *,
        scale: float = 1.0,
        clients: Collection[int] | None = None,
    ) -> Requests:
        """The requests of a span of the recording; arrivals count from its beginning.

        A window without data repeats the one before. ``scale``: factor on every rate; ``clients``:
        only these; None = all with lengths.

        Raises ValueError: the span is empty or outside the recording.
        """
        if not self.start_seconds <= from_seconds < to_seconds <= self.end_seconds:
            raise ValueError(
                f"{from_seconds:g}..{to_seconds:g} s is no span of the recording's "
                f"{self.start_seconds:g}..{self.end_seconds:g} s"
            )
        which, start = self._windows(from_seconds, to_seconds, clients)
        expected = self._rate[which] * WINDOW_SECONDS * scale
        # a fraction of a request is its probability, so that small scales keep the rate
        count = np.floor(expected + rng.random(len(expected))).astype(np.int64)
        arrival = start.repeat(count) + _burst_offsets(count, self._cv[which], rng)
        client = self._client[which].repeat(count)
        inside = (arrival >= from_seconds) & (arrival < to_seconds)
        arrival, client = arrival[inside], client[inside]
        order = np.argsort(arrival, kind="stable")
        arrival, client = arrival[order], client[order]
        epoch = np.floor(arrival / EPOCH_SECONDS).astype(np.int64) * EPOCH_SECONDS
        lengths = (self._lengths[kind].draw(client, epoch, rng) for kind in KINDS)
        return make_requests(arrival - from_seconds, *lengths)

    def _windows(
        self, start: float, end: float, clients: Collection[int] | None
    ) -> tuple[Integers, Floats]:
        """Rows of the rate table for a span, and the start of each."""
        sent = (self._start + WINDOW_SECONDS > start) & (self._start < end)
        rows = [np.flatnonzero(sent)]
        begins = [self._start[sent]]
        there = np.unique(self._start)
        lacking = self.missing[(self.missing + WINDOW_SECONDS > start) & (self.missing < end)]
        for window in lacking:
            before = there[np.searchsorted(there, window) - 1]
            same = np.flatnonzero(self._start == before)
            rows.append(same)
            begins.append(np.full(len(same), window))
        which, begin = np.concatenate(rows), np.concatenate(begins).astype(np.float64)
        if clients is not None:
            wanted = np.isin(self._client[which], list(clients))
            which, begin = which[wanted], begin[wanted]
        return which, begin


def _burst_offsets(count: Integers, cv: Floats, rng: np.random.Generator) -> Floats:
    """Offsets in a window for each request: ends of ``count`` of ``count + 1`` Gamma gaps."""
    gaps = count + 1
    ends = np.cumsum(gaps)
    # no gap is 0, though a tiny shape underflows
    gap_lengths = rng.standard_gamma((1.0 / cv**2).repeat(gaps)) + 1e-300
    total = np.add.reduceat(gap_lengths, ends - gaps) if len(gaps) else np.zeros(0)
    share = gap_lengths / total.repeat(gaps)
    reached = np.cumsum(share) - np.arange(len(gaps)).repeat(gaps)
    last = np.zeros(len(gap_lengths), dtype=bool)
    last[ends - 1] = True  # the gap after a window's last request
    return np.clip(reached[~last], 0.0, np.nextafter(1.0, 0.0)) * WINDOW_SECONDS
