"""Formats of request logs, told apart by their columns, and how each becomes our columns.

- driftwatch's own: arrival_seconds, prompt_tokens, generation_tokens and optional columns.
- Azure LLM inference traces 2023 and 2024: TIMESTAMP, ContextTokens, GeneratedTokens.
- Mooncake traces (FAST '25): timestamp (ms), input_length, output_length, hash_ids.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Floats
from driftwatch.simulate.workload.chunks import Chunk
from driftwatch.simulate.workload.columns import COLUMNS, OPTIONAL, REQUIRED, numbers
from driftwatch.simulate.workload.problems import NAMED, Problems


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    Attributes:
        name: for messages.
        required: its columns that must be there.
        optional: its columns that are used where they are there.
        renamed: its column → ours, for columns that hold the same.
        times: reads the arrivals, where they are no plain seconds: chunk, zero, problems → seconds
            since zero (NaN where they cannot be read) and the zero, where the format has one: the
            first request's time in whole nanoseconds, None until there is one.
    """

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    renamed: dict[str, str]
    times: Callable[[Chunk, int | None, Problems], tuple[Floats, int | None]] | None = None

    @property
    def numeric(self) -> frozenset[str]:
        """Its columns that hold numbers."""
        return frozenset((*self.required, *self.optional)) - {"TIMESTAMP", "hash_ids"}


def _wall_clock(chunk: Chunk, zero: int | None, problems: Problems) -> tuple[Floats, int | None]:
    """TIMESTAMP as seconds since the first one; a zone, where one is written, counts."""
    column = chunk.frame["TIMESTAMP"]
    if column.dtype == pl.String:
        # a line-by-line JSON value keeps its quotes
        text = column.str.strip_chars(' "').str.replace("T", " ", literal=True)
        plain = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="ns", strict=False)
        zoned = text.str.replace("Z$", "+00:00").str.to_datetime(
            "%Y-%m-%d %H:%M:%S%.f%:z", time_unit="ns", time_zone="UTC", strict=False
        )
        stamps = plain.zip_with(plain.is_not_null(), zoned.dt.replace_time_zone(None))
    elif column.dtype.is_temporal() and column.dtype not in (pl.Time, pl.Duration):
        stamps = column.cast(pl.Datetime("ns"))
    else:
        stamps = pl.Series([None], dtype=pl.Datetime("ns")).new_from_index(0, len(column))
    unread = stamps.is_null().to_numpy()
    if unread.any():
        where = np.flatnonzero(unread)
        shown = [
            "no TIMESTAMP"
            if (raw := column[int(row)]) is None
            else f"TIMESTAMP is {str(raw)[:40]}, no time as 2023-11-16 18:15:46.6805900"
            for row in where[:NAMED]
        ]
        problems.add_all(chunk.lines[where], shown)
    ticks = stamps.to_physical().fill_null(0).to_numpy()
    if zero is None:
        if unread.all():
            return np.full(len(ticks), np.nan), None
        zero = int(ticks[~unread][0])
    # subtracted as integers: a float holds no nanoseconds of an epoch
    return np.where(unread, np.nan, (ticks - zero) / 1e9), zero


def _milliseconds(chunk: Chunk, zero: int | None, problems: Problems) -> tuple[Floats, int | None]:
    """Mooncake's timestamp: milliseconds since the start of the trace."""
    arrival = COLUMNS[0]
    renamed = Chunk(chunk.lines, chunk.frame.rename({"timestamp": arrival.name}))
    return numbers(arrival, renamed, problems, "timestamp") / 1000.0, zero


OWN = Format("driftwatch", REQUIRED, OPTIONAL, {name: name for name in (*REQUIRED, *OPTIONAL)})
AZURE = Format(
    "Azure trace",
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    (),
    {"ContextTokens": "prompt_tokens", "GeneratedTokens": "generation_tokens"},
    times=_wall_clock,
)
MOONCAKE = Format(
    "Mooncake trace",
    ("timestamp", "input_length", "output_length"),
    ("hash_ids",),
    {"input_length": "prompt_tokens", "output_length": "generation_tokens"},
    times=_milliseconds,
)
# What a load generator writes of each request, as beside the recorded runs of real servers: when it
# was sent (seconds since 1970), and the tokens of its prompt and of what it asked to generate.
GENERATOR = Format(
    "load generator",
    ("sent", "p", "g"),
    (),
    {"sent": "arrival_seconds", "p": "prompt_tokens", "g": "generation_tokens"},
)
FORMATS = (OWN, AZURE, MOONCAKE, GENERATOR)
NUMERIC = frozenset().union(*(one.numeric for one in FORMATS))


def recognise(path: str, columns: Iterable[str]) -> Format:
    """The format whose columns these are.

    Raises:
        WorkloadError: none has all its columns here; names those of the nearest that lack.
    """
    there = set(columns)
    for one in FORMATS:
        if there.issuperset(one.required):
            return one
    if {"requests_per_second", "arrival_cv"} <= there:
        raise WorkloadError(
            (f"{path}: ServeGen's rates; its lengths are in another file",),
            help_text="give both: --requests RATES.parquet --servegen-lengths LENGTHS.parquet",
        )
    nearest = max(FORMATS, key=lambda one: len(there & set(one.required)))
    missing = [name for name in nearest.required if name not in there]
    hints = [
        f"{close[0]} for {name}"
        for name in missing
        if (close := difflib.get_close_matches(name, sorted(there - set(nearest.renamed)), n=1))
    ]
    shown = ", ".join(sorted(there)[:12]) or "none"
    raise WorkloadError(
        (f"{path}: no column {', '.join(missing)} (there: {shown})",),
        help_text=(f"rename {', '.join(hints)}; " if hints else "")
        + "columns are arrival_seconds, prompt_tokens, generation_tokens, "
        + "those of an Azure or Mooncake trace, or sent, p, g of a load generator",
    )
