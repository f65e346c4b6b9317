"""Sources of a scenario's requests: real traces, thinned to one server's share.

A source has a clock of its own, on which the whole pool gets one request a second in the mean.
:mod:`driftwatch.fleet.traffic` maps that clock to the scenario's rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.errors import WorkloadError
from driftwatch.fleet.scenario.demand import Traffic
from driftwatch.fleet.servegen import ServeGen
from driftwatch.simulate.workload.requests_file import read_requests

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# Requests of a trace that stay together: longer than its bursts, short against the trace
_BLOCK = 500


@dataclass(frozen=True, slots=True, eq=False)
class ClockedRequests:
    """Requests in order."""

    at: Floats  # on the pool's clock of one request a second
    prompt_tokens: Integers
    generation_tokens: Integers


class TrafficSource(Protocol):
    """Draws one server's requests."""

    def draw(
        self, total: float, share: int, window: tuple[float, float], rng: np.random.Generator
    ) -> ClockedRequests:
        """Requests of one server out of ``share``.

        ``total``: length on the pool's clock, so the number of the pool's requests; ``window``: the
        same stretch in the scenario's time, seconds.
        """


class TraceSource:
    """A trace in blocks, each from a random place: gaps and lengths stay together in a block."""

    def __init__(
        self, arrival_seconds: Floats, prompt_tokens: Integers, generation_tokens: Integers
    ) -> None:
        gaps = np.diff(arrival_seconds)
        if len(gaps) < 2 or gaps.sum() <= 0:
            raise WorkloadError(("a trace needs at least three requests at different times",))
        # the unknown gap before the first is the mean; gaps of mean 1 make the pool's clock
        gaps = np.concatenate([[gaps.mean()], gaps]) / gaps.mean()
        self._count = len(gaps)
        self._block = min(_BLOCK, self._count)
        self._prompt, self._generation = prompt_tokens, generation_tokens
        # clock after each request, over two rounds: a block may pass the end of the trace
        self._clock = np.concatenate([[0.0], np.cumsum(np.concatenate([gaps, gaps]))])

    def draw(
        self, total: float, share: int, window: tuple[float, float], rng: np.random.Generator
    ) -> ClockedRequests:
        """Each request of the pool is this server's with probability 1/share."""
        del window  # a trace of an hour has no daily rhythm
        starts, begins, filled = [], [], 0.0
        while filled < total:
            some = max(16, int((total - filled) / self._block * 1.1))
            first = rng.integers(0, self._count, some)
            lasts = self._clock[first + self._block] - self._clock[first]
            ends = filled + np.cumsum(lasts)
            starts.append(first)
            begins.append(ends - lasts)
            filled = float(ends[-1])
        start, begin = np.concatenate(starts), np.concatenate(begins)
        index = _thinned(len(start) * self._block, share, rng)
        block, inside = np.divmod(index, self._block)
        position = start[block] + inside
        at = begin[block] + self._clock[position + 1] - self._clock[start[block]]
        in_time = at < total
        which = position[in_time] % self._count
        return ClockedRequests(at[in_time], self._prompt[which], self._generation[which])


class ServeGenSource:
    """ServeGen's clients, superposed; their mix drifts over hours and days as production did.

    Args:
        folder: holds ``servegen_rates.parquet`` and ``servegen_lengths.parquet``, or the names of
            the dataset (``m-small_…``).
        offset_seconds: start of the scenario in its two weeks.
        model_class: which of several pairs of files; None = the folder has one pair.
        clients: ``all`` with lengths, or those of ``even`` or ``odd`` number.
    """

    def __init__(
        self,
        folder: Path,
        offset_seconds: float = 0.0,
        model_class: str | None = None,
        clients: str = "all",
    ) -> None:
        of = "*" if model_class is None else model_class
        rates, lengths = (_one_of(folder, f"{of}_{kind}.parquet") for kind in ("rates", "lengths"))
        self._servegen = ServeGen(rates, lengths)
        self._offset = offset_seconds
        parity = {"all": (0, 1), "even": (0,), "odd": (1,)}[clients]
        self._clients = tuple(c for c in self._servegen.clients if c % 2 in parity)
        if not self._clients:
            raise WorkloadError((f"{rates}: no {clients} client has lengths",))
        whole = pl.read_parquet(rates).filter(pl.col("client").is_in(list(self._clients)))
        sent = float(whole["requests_per_second"].cast(pl.Float64).sum())
        self._mean_rate = sent / whole["start_seconds"].n_unique()
        self._first, self._end = self._servegen.start_seconds, self._servegen.end_seconds

    def draw(
        self, total: float, share: int, window: tuple[float, float], rng: np.random.Generator
    ) -> ClockedRequests:
        """The clients' own hour and day: the pool's clock is stretched over the window.

        The clients' rates in these hours decide the number of requests: more than ``total`` in
        busy hours, fewer in others.
        """
        length = window[1] - window[0]
        start = self._first + (self._offset + window[0]) % (self._end - self._first)
        scale = total / length / self._mean_rate / share
        pieces, filled = [], 0.0
        while filled < length:
            some = min(length - filled, self._end - start)
            piece = self._servegen.requests(
                start, start + some, rng, scale=scale, clients=self._clients
            )
            pieces.append((piece, filled))
            start, filled = self._first, filled + some
        arrival = np.concatenate([d.arrival_seconds + shift for d, shift in pieces])
        return ClockedRequests(
            arrival * (total / length),
            np.concatenate([d.prompt_tokens for d, _ in pieces]),
            np.concatenate([d.generation_tokens for d, _ in pieces]),
        )


def source_of(traffic: Traffic) -> TrafficSource:
    """The source of a scenario's traffic.

    Raises WorkloadError: its file cannot be read.
    """
    return _source(
        traffic.source, traffic.path, traffic.offset, traffic.model_class, traffic.clients
    )


@lru_cache(maxsize=4)
def _source(
    name: str, path: Path | None, offset: float, model_class: str | None, clients: str
) -> TrafficSource:
    if path is not None:
        if path.is_dir():
            return ServeGenSource(path, offset, model_class, clients)
        requests = read_requests(path)
        return TraceSource(
            requests.arrival_seconds, requests.prompt_tokens, requests.generation_tokens
        )
    with as_file(files("driftwatch.fleet") / "traffic_data") as folder:
        if name == "servegen":
            return ServeGenSource(folder, offset, clients=clients)
        table = pl.read_parquet(folder / f"azure_2023_{name.removeprefix('azure_')}.parquet")
    return TraceSource(
        table["arrival_seconds"].cast(pl.Float64).to_numpy(),
        table["prompt_tokens"].cast(pl.Int64).to_numpy(),
        table["generation_tokens"].cast(pl.Int64).to_numpy(),
    )


def _one_of(folder: Path, pattern: str) -> Path:
    paths = sorted(folder.glob(pattern))
    if len(paths) != 1:
        raise WorkloadError((f"{folder}: has {len(paths)} files {pattern}, not one",))
    return paths[0]


def _thinned(count: int, share: int, rng: np.random.Generator) -> Integers:
    """Sorted numbers below ``count``, each drawn with probability 1/share."""
    if share <= 1:
        return np.arange(count, dtype=np.int64)
    parts, last = [], -1
    while last < count:
        expected = int((count - last) / share * 1.05) + 64
        steps = last + np.cumsum(rng.geometric(1.0 / share, expected))
        parts.append(steps)
        last = int(steps[-1])
    numbers = np.concatenate(parts)
    return numbers[numbers < count]
