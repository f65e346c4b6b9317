"""ServeGen's two tables, read and checked; lengths drawn from many distributions at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Floats, Integers

WINDOW_SECONDS = 600
EPOCH_SECONDS = 6 * 3600
KINDS = ("prompt", "generation")


def read_rates(path: Path) -> pl.DataFrame:
    """The table of rates.

    Raises:
        WorkloadError: it cannot be read, lacks a column, or holds what cannot be.
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
    """Distributions of tokens by kind, client and epoch of 6 hours.

    Attributes:
        clients: clients that have both kinds.
        keys: for each kind (client, epoch) as one sorted number, one a distribution.
        rises: for each kind the distributions' cumulated probabilities, the number of the
            distribution added to each, so that one search finds a length in any of them.
        tokens: for each kind the tokens that belong to them.
    """

    clients: frozenset[int]
    keys: dict[str, Integers]
    rises: dict[str, Floats]
    tokens: dict[str, Integers]

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
        found = np.searchsorted(self.rises[kind], which + rng.random(len(which)), side="right")
        return self.tokens[kind][found]


_KEY = 1 << 40  # epochs are below it: 34,000 years


def _key(client: Integers, epoch: Integers) -> Integers:
    return client * _KEY + epoch


def read_lengths(path: Path) -> LengthTable:
    """The table of lengths; a length of 0 counts as 1: a request has at least one token.

    Raises:
        WorkloadError: it cannot be read, lacks a column, or holds what cannot be.
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
    found = []
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
            found.append(f"{path}:row {int(bad[0]) + 1}{more}: {what}")
    if found:
        raise WorkloadError(tuple(found))
    return table
