"""Formats of request logs, told apart by their columns, and what makes a value impossible.

- driftwatch's own: arrival_seconds, prompt_tokens, generation_tokens and optional columns.
- Azure LLM inference traces 2023 (Patel et al., "Splitwise", ISCA 2024) and 2024 (Stojkovic et al.,
  "DynamoLLM", HPCA 2025): TIMESTAMP, ContextTokens, GeneratedTokens.
- Mooncake traces (Qin et al., FAST '25): timestamp (ms), input_length, output_length.

A column becomes an array of numbers; every value that cannot be is named with its line.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Floats
from driftwatch.simulate.workload.tables import NAMED, Problems, Table

Mask = npt.NDArray[np.bool_]
LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a request log."""

    name: str  # as in ``Requests``
    least: float  # smallest value that can be
    whole: bool = True  # tokens, groups and priorities are whole; times are not
    neutral: float | None = None  # what an empty field means; None = it must not be empty
    endless: bool = False  # infinity is a value (never), as in ``cancel_seconds``


COLUMNS = (
    Column("arrival_seconds", 0.0, whole=False),
    Column("prompt_tokens", 1),
    Column("generation_tokens", 1),
    Column("priority", -LARGEST, neutral=0),
    Column("prefix_group", -1, neutral=-1),
    Column("shared_prefix_tokens", 0, neutral=0),
    Column("cached_tokens", -1, neutral=-1),
    Column("cancel_seconds", 0.0, whole=False, neutral=np.inf, endless=True),
    Column("adapter", -1, neutral=-1),
)
REQUIRED = tuple(column.name for column in COLUMNS if column.neutral is None)
OPTIONAL = tuple(column.name for column in COLUMNS if column.neutral is not None)
BY_NAME = {column.name: column for column in COLUMNS}


def numbers(column: Column, table: Table, problems: Problems, label: str) -> Floats:
    """One column of a table as numbers; NaN where the value cannot be.

    Args:
        column: what it must hold.
        table: rows with a column of that name, or without (then it is empty in each row).
        problems: takes what cannot be.
        label: the name the column has in the file, for messages.
    """
    count = table.frame.height
    if column.name not in table.frame.columns:
        raw = pl.Series(column.name, [None], dtype=pl.Null).new_from_index(0, count)
    else:
        raw = table.frame[column.name]
    if raw.dtype == pl.String:
        stripped = raw.str.strip_chars()
        raw = stripped.set(stripped == "", None)
        series = raw.cast(pl.Float64, strict=False)
    elif raw.dtype.is_numeric() or raw.dtype == pl.Null:
        series = raw.cast(pl.Float64, strict=False)
    else:
        series = pl.Series([None], dtype=pl.Float64).new_from_index(0, count)
    empty = raw.is_null().to_numpy()
    unread = series.is_null().to_numpy() & ~empty
    values = series.fill_null(np.nan).to_numpy().astype(np.float64, copy=True)
    with np.errstate(invalid="ignore"):
        bad = unread | np.isnan(values) | (values < column.least)
        if not column.endless:
            bad |= ~np.isfinite(values)
        if column.whole:
            bad |= (values != np.floor(values)) | (values > LARGEST)
    if column.neutral is not None:
        bad &= ~empty
        values[empty] = column.neutral
    else:
        bad |= empty
    if bad.any():
        where = np.flatnonzero(bad)
        messages = [_wrong(column, label, raw[int(row)], values[row]) for row in where[:NAMED]]
        problems.add_all(table.lines[where], messages)
        values[bad] = np.nan
    return values


def _wrong(column: Column, label: str, raw: object, value: float) -> str:
    """Why one value cannot be."""
    if raw is None:
        return f"no {label}"
    text = str(raw)
    short = text if len(text) <= 40 else f"{text[:40]}..."
    if np.isnan(value):
        return f"{label} is {short}, no number"
    if np.isinf(value):
        return f"{label} is infinite"
    if value < column.least:
        least = f"at least {column.least:g}" if column.least > 0 else "must not be negative"
        return f"{label} is {short}: {least}"
    if column.whole and value != np.floor(value):
        return f"{label} is {short}, not a whole number"
    return f"{label} is {short}: at most {LARGEST:,}"


def cross_problems(
    columns: dict[str, Floats],
    lines: npt.NDArray[np.int64],
    problems: Problems,
    *,
    any_order: bool,
) -> None:
    """What is wrong between columns and rows.

    Args:
        columns: NaN where a value was refused already.
        lines: their lines.
        problems: takes what is wrong.
        any_order: rows need not be in the order of arrival.
    """
    arrival = columns["arrival_seconds"]
    previous = np.full(len(arrival), -np.inf)
    if not any_order:
        previous[1:] = arrival[:-1]
    _tell(
        arrival < previous,
        lines,
        problems,
        lambda row: (
            f"arrival_seconds {float(arrival[row])!r} is before the row above "
            f"({float(previous[row])!r}): sort the file by arrival"
        ),
    )
    if "cancel_seconds" in columns:
        cancel = columns["cancel_seconds"]
        _tell(
            cancel < arrival,
            lines,
            problems,
            lambda row: (
                f"cancel_seconds {float(cancel[row])!r} is before arrival_seconds "
                f"{float(arrival[row])!r}"
            ),
        )
    if "cached_tokens" in columns:
        cached, prompt = columns["cached_tokens"], columns["prompt_tokens"]
        _tell(
            cached >= prompt,
            lines,
            problems,
            lambda row: (
                f"cached_tokens {cached[row]:.0f} of {prompt[row]:.0f} prompt_tokens: the last "
                "token is always computed"
            ),
        )
    if "shared_prefix_tokens" in columns:
        shared = columns["shared_prefix_tokens"]
        group = columns.get("prefix_group", np.full(len(shared), -1.0))
        _tell(
            (shared > 0) & (group < 0),
            lines,
            problems,
            lambda row: f"shared_prefix_tokens {shared[row]:.0f} without a prefix_group",
        )


def _tell(
    bad: Mask, lines: npt.NDArray[np.int64], problems: Problems, message: Callable[[int], str]
) -> None:
    if bad.any():
        where = np.flatnonzero(bad)
        problems.add_all(lines[where], [message(int(row)) for row in where[:NAMED]])


@dataclass(frozen=True, slots=True)
class Format:
    """One format."""

    name: str  # for messages
    required: tuple[str, ...]  # its columns that must be there
    optional: tuple[str, ...]  # its columns that are used where they are there
    renamed: dict[str, str]  # its column → ours, for columns that hold the same
    # reads the arrivals, where they are no plain seconds; NaN where they cannot be read
    times: Callable[[Table, Problems], Floats] | None = None

    @property
    def numeric(self) -> frozenset[str]:
        """Its columns that hold numbers."""
        return frozenset((*self.required, *self.optional)) - {"TIMESTAMP"}


def _wall_clock(table: Table, problems: Problems) -> Floats:
    """TIMESTAMP as seconds since the first one; a zone, where one is written, counts."""
    column = table.frame["TIMESTAMP"]
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
        messages = [
            "no TIMESTAMP"
            if (raw := column[int(row)]) is None
            else f"TIMESTAMP is {str(raw)[:40]}, no time as 2023-11-16 18:15:46.6805900"
            for row in where[:NAMED]
        ]
        problems.add_all(table.lines[where], messages)
    ticks = stamps.to_physical().fill_null(0).to_numpy()
    if unread.all():
        return np.full(len(ticks), np.nan)
    # subtracted as integers: a float holds no nanoseconds of an epoch
    return np.where(unread, np.nan, (ticks - int(ticks[~unread][0])) / 1e9)


def _milliseconds(table: Table, problems: Problems) -> Floats:
    """Mooncake's timestamp: milliseconds since the start of the trace."""
    arrival = COLUMNS[0]
    renamed = Table(table.lines, table.frame.rename({"timestamp": arrival.name}))
    return numbers(arrival, renamed, problems, "timestamp") / 1000.0


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
    (),
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

    Raises WorkloadError: none has all its columns here; names those of the nearest that lack.
    """
    there = set(columns)
    for one in FORMATS:
        if there.issuperset(one.required):
            return one
    if {"requests_per_second", "arrival_cv"} <= there:
        raise WorkloadError(
            (f"{path}: ServeGen's rates; its lengths are in another file",),
            help_text="give a request log: arrival_seconds, prompt_tokens, generation_tokens",
        )
    nearest = max(FORMATS, key=lambda one: len(there & set(one.required)))
    missing = [name for name in nearest.required if name not in there]
    hints = [
        f"{close[0]} for {name}"
        for name in missing
        if (close := difflib.get_close_matches(name, sorted(there - set(nearest.renamed)), n=1))
    ]
    listed = ", ".join(sorted(there)[:12]) or "none"
    raise WorkloadError(
        (f"{path}: no column {', '.join(missing)} (there: {listed})",),
        help_text=(f"rename {', '.join(hints)}; " if hints else "")
        + "columns are arrival_seconds, prompt_tokens, generation_tokens, "
        + "those of an Azure or Mooncake trace, or sent, p, g of a load generator",
    )
