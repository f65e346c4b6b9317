"""ServeGen: production traffic as a sum of clients, each with its own rates and lengths.

Two tables (Xiang et al., "ServeGen", arXiv 2505.09999): rates (client, start_seconds,
requests_per_second, arrival_cv; windows of 10 minutes) and lengths (client, start_seconds,
kind = prompt | generation, tokens, probability; a distribution each 6 hours). In each window a
client sends as many requests as recorded, at the ends of Gamma gaps of its CV scaled to fill the
window, so a burst is a burst and the window's rate stays that of the recording. Prompt and
generation of a request are drawn independently: the tables hold no joint distribution.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Floats, Integers, Requests, make_requests

WINDOW_SECONDS = 600
EPOCH_SECONDS = 6 * 3600
KINDS = ("prompt", "generation")


def read_rates(path: Path) -> pl.DataFrame:
    """The table of rates.

    Raises WorkloadError: it cannot be read, lacks a column, or holds what cannot be.
    """
    table = _table(path, ("client", "start_seconds", "requests_per_second", "arrival_cv"))
    rate, cv = pl.col("requests_per_second"), pl.col("arrival_cv")
    return _checked(
        path,
        table,
        {
            "a window that does not start on ten minutes": pl.col("start_seconds") % WINDOW_SECONDS
            != 0,
            "requests_per_second negative or endless": ~(rate.is_finite() & (rate >= 0)),
            "arrival_cv not above 0": ~(cv > 0) | cv.is_nan(),
            "a client's window twice": pl.struct("client", "start_seconds").is_duplicated(),
        },
    )


@dataclass(frozen=True, slots=True, eq=False)
class LengthTable:
    """Distributions of tokens by kind, client and epoch of 6 hours."""

    clients: frozenset[int]  # clients that have both kinds
    # for each kind (client, epoch) as one sorted number, one a distribution
    keys: dict[str, Integers]
    # for each kind the distributions' cumulated probabilities, the number of the distribution added
    # to each, so that one search finds a length in any of them
    rises: dict[str, Floats]
    tokens: dict[str, Integers]  # for each kind the tokens that belong to them

    def draw(
        self, kind: str, client: Integers, epoch: Integers, rng: np.random.Generator
    ) -> Integers:
        """A length for each (client, epoch).

        Where a client has no distribution for an epoch, its one before is used, else its first.
        """
        keys = self.keys[kind]
        which = np.searchsorted(keys, _key(client, epoch), side="right") - 1
        of_client = np.where(which >= 0, keys[which] // _KEY, -1) == client
        which = np.where(of_client, which, which + 1)
        cells = np.searchsorted(self.rises[kind], which + rng.random(len(which)), side="right")
        return self.tokens[kind][cells]


_KEY = 1 << 40  # epochs are below it: 34,000 years


def _key(client: Integers, epoch: Integers) -> Integers:
    return client * _KEY + epoch


def read_lengths(path: Path) -> LengthTable:
    """The table of lengths; a length of 0 counts as 1: a request has at least one token.

    Raises WorkloadError: it cannot be read, lacks a column, or holds what cannot be.
    """
    table = _table(path, ("client", "start_seconds", "kind", "tokens", "probability"))
    chance = pl.col("probability")
    table = _checked(
        path,
        table.with_columns(pl.col("kind").cast(pl.String)),
        {
            "kind is not prompt or generation": ~pl.col("kind").is_in(KINDS),
            "tokens negative": pl.col("tokens").cast(pl.Int64) < 0,
            "probability outside 0…1": ~chance.is_between(0.0, 1.0) | chance.is_nan(),
        },
    )
    keys, rises, tokens = {}, {}, {}
    clients: frozenset[int] | None = None
    for kind in KINDS:
        of_kind = table.filter((pl.col("kind") == kind) & (chance > 0)).sort(
            "client", "start_seconds", "tokens"
        )
        of = frozenset(of_kind["client"].unique().to_list())
        clients = of if clients is None else clients & of
        key = _key(
            of_kind["client"].to_numpy().astype(np.int64),
            of_kind["start_seconds"].to_numpy().astype(np.int64),
        )
        keys[kind], first, number = np.unique(key, return_index=True, return_inverse=True)
        weight = of_kind["probability"].to_numpy().astype(np.float64)
        total = np.add.reduceat(weight, first) if len(first) else np.zeros(0)
        sums = np.cumsum(weight)
        before = sums[first] - weight[first]
        share = (sums - before[number]) / total[number]
        share[np.append(first[1:], len(share)) - 1] = 1.0  # against rounding
        rises[kind] = number + share
        tokens[kind] = np.maximum(of_kind["tokens"].to_numpy().astype(np.int64), 1)
    return LengthTable(clients or frozenset(), keys, rises, tokens)


def _table(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    try:
        scan = pl.scan_parquet(path, glob=False)
        there = scan.collect_schema().names()
        if missing := [name for name in columns if name not in there]:
            raise WorkloadError(
                (f"{path}: no column {', '.join(missing)} (there: {', '.join(there[:12])})",),
                help_text="ServeGen's two tables: "
                "client, start_seconds, requests_per_second, arrival_cv; "
                "client, start_seconds, kind, tokens, probability",
            )
        return scan.select(columns).collect()
    except OSError as error:
        raise WorkloadError(
            (f"{path}: {error.strerror or error}",),
            help_text="name a file that is there and can be read: ServeGen's Parquet tables",
        ) from error
    except pl.exceptions.PolarsError as error:
        raise WorkloadError((f"{path}: no Parquet file ({error})".splitlines()[0],)) from error


def _checked(path: Path, table: pl.DataFrame, wrong: dict[str, pl.Expr]) -> pl.DataFrame:
    """The table, where none of the conditions holds in any row."""
    problems = []
    if not table.height:
        raise WorkloadError((f"{path}: no rows",))
    for name in table.columns:
        if name != "kind" and not table[name].dtype.is_numeric():
            raise WorkloadError((f"{path}: {name} is {table[name].dtype}, no number",))
    checks = {f"no {name}": pl.col(name).is_null() for name in table.columns} | wrong
    for what, condition in checks.items():
        bad = table.select(condition.fill_null(False).arg_true()).to_series()
        if len(bad):
            more = f" and {len(bad) - 1:,} more rows" if len(bad) > 1 else ""
            problems.append(f"{path}:row {int(bad[0]) + 1}{more}: {what}")
    if problems:
        raise WorkloadError(tuple(problems))
    return table


CV_CAP = 10.0
"""Recorded CVs reach 797: one burst in a window. From 10 on a window is one burst anyway."""


class ServeGen:
    """The clients of one model class.

    Args:
        rates_path: Parquet file of rates.
        lengths_path: Parquet file of lengths.
        cv_cap: largest CV of a client's gaps in a window.

    Attributes:
        clients: those that have lengths, sorted.
        missing: starts of windows for which no client has a row: no data, not silence.

    Raises:
        WorkloadError: a table cannot be read, lacks a column, or holds what cannot be.
    """

    def __init__(
        self, rates_path: Path | str, lengths_path: Path | str, *, cv_cap: float = CV_CAP
    ) -> None:
        rates = read_rates(Path(rates_path))
        self._lengths: LengthTable = read_lengths(Path(lengths_path))
        everybody = rates["client"].unique().sort().to_list()
        self.clients: tuple[int, ...] = tuple(c for c in everybody if c in self._lengths.clients)
        starts = rates["start_seconds"].unique().sort().to_numpy().astype(np.int64)
        whole = np.arange(starts[0], starts[-1] + 1, WINDOW_SECONDS)
        self.missing: Integers = np.setdiff1d(whole, starts)
        self.start_seconds = float(starts[0])
        self.end_seconds = float(starts[-1] + WINDOW_SECONDS)
        with_lengths = rates.filter(pl.col("client").is_in(list(self.clients)))
        if not with_lengths.height:
            raise WorkloadError((f"{lengths_path}: no client of {rates_path} has lengths",))
        with_lengths = with_lengths.sort("start_seconds", "client")
        self._client = with_lengths["client"].to_numpy().astype(np.int64)
        self._start = with_lengths["start_seconds"].to_numpy().astype(np.int64)
        self._rate = with_lengths["requests_per_second"].to_numpy().astype(np.float64)
        self._cv = np.minimum(with_lengths["arrival_cv"].to_numpy().astype(np.float64), cv_cap)

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

        In a window without data is sent what was sent in the one before it.

        Args:
            from_seconds: beginning of the span, on the recording's clock.
            to_seconds: its end.
            rng: the randomness.
            scale: factor on every rate.
            clients: only these; all that have lengths where None.

        Raises:
            ValueError: the span is empty or outside the recording, the scale is negative, or a
                client has no lengths.
        """
        if not self.start_seconds <= from_seconds < to_seconds <= self.end_seconds:
            raise ValueError(
                f"{from_seconds:g}..{to_seconds:g} s is no span of the recording's "
                f"{self.start_seconds:g}..{self.end_seconds:g} s"
            )
        if not (np.isfinite(scale) and scale >= 0):
            raise ValueError(f"scale must be finite and not negative, not {scale}")
        if clients is not None and (unknown := sorted(set(clients) - set(self.clients))):
            raise ValueError(f"no lengths for client {', '.join(map(str, unknown))}")
        which, start = self._windows(from_seconds, to_seconds, clients)
        expected = self._rate[which] * WINDOW_SECONDS * scale
        # a fraction of a request is sent with its probability, so that small scales keep the rate
        count = np.floor(expected + rng.random(len(expected))).astype(np.int64)
        arrival = start.repeat(count) + _burst_offsets(count, self._cv[which], rng)
        client = self._client[which].repeat(count)
        inside = (arrival >= from_seconds) & (arrival < to_seconds)
        arrival, client = arrival[inside], client[inside]
        order = np.argsort(arrival, kind="stable")
        arrival, client = arrival[order], client[order]
        epoch = np.floor(arrival / EPOCH_SECONDS).astype(np.int64) * EPOCH_SECONDS
        return make_requests(
            arrival - from_seconds,
            self._lengths.draw("prompt", client, epoch, rng),
            self._lengths.draw("generation", client, epoch, rng),
        )

    def _windows(
        self, start: float, end: float, clients: Collection[int] | None
    ) -> tuple[Integers, Floats]:
        """Rows of the rate table that are sent in a span, and when each of them begins."""
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
    # a gap of 0 (a tiny shape underflows) still counts as a gap
    gap_lengths = rng.standard_gamma((1.0 / cv**2).repeat(gaps)) + 1e-300
    total = np.add.reduceat(gap_lengths, ends - gaps) if len(gaps) else np.zeros(0)
    share = gap_lengths / total.repeat(gaps)
    reached = np.cumsum(share) - np.arange(len(gaps)).repeat(gaps)
    last = np.zeros(len(gap_lengths), dtype=bool)
    last[ends - 1] = True  # the gap after a window's last request
    return np.clip(reached[~last], 0.0, np.nextafter(1.0, 0.0)) * WINDOW_SECONDS
