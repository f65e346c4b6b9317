"""The evidence table's columns as data (``columns.toml``): docs, conditions and pages read this.

One row per target and window (a minute, unless asked otherwise). NULL is unknown, never 0;
NaN and infinities become NULL before any condition sees them.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

DType = Literal["float", "bool", "string"]
# What a column needs besides what the scrapes show.
Need = Literal[
    "prompt_tokens_reference",  # tuned_for, or a baseline
    "generation_tokens_reference",
    "lengths_reference",  # one of both
    "baseline",
    "gpu_count",  # declared, or read
    "gpu_reading",
    "slo",  # one of both targets
    "slo_ttft",
    "slo_tpot",
    "max_num_seqs",  # configured, else inferred once it binds
    "max_num_batched_tokens",
    "pool_of_several",
    "pool_of_three",
    "speed_baseline",  # an armed baseline of its own or of its pool
    "release",  # of vLLM, its image or the driver
    "own_past",  # days of its own minutes
    "day",  # a baseline, or twelve hours of its own minutes before a midnight
]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the evidence table."""

    name: str  # unit in the name
    dtype: DType
    unit: str  # base unit, ``1`` for ratios
    meaning: str  # definition in the field's words
    sources: tuple[str, ...] = ()  # scrape columns (see the metric registry), or other inputs
    disabled_by: str = ""  # why it may be NULL, besides a missing source
    aliases: tuple[str, ...] = ()  # words people search by
    needs: tuple[Need, ...] = ()  # without these it is NULL, besides its sources
    # sources that it can do without
    optional: tuple[str, ...] = ()
    short: str = ""  # its name in a line of a page; empty = ``name``
    detected: bool = False  # a detector with a past adds it; a window has its last minute's value
    stored: bool = False  # kept with each minute: neither counters nor detectors give it back
    # only an accepted baseline fills it: driftwatch's own proposal serves the speed alone
    baseline_only: bool = False
    # the range of a number; None = no end
    low: float | None = None
    high: float | None = None
    usual: float | None = None  # a threshold above it is probably in a wrong unit; None = any
    words: tuple[str, ...] = ()  # the values of a string; empty = any


def _columns(text: str) -> Iterator[Column]:
    """The columns of a file, as the comment at its top describes it."""
    document = tomllib.loads(text)
    phrases: dict[str, str] = document["phrases"]
    inputs: dict[str, list[str]] = document["inputs"]
    for of, entries in groupby(document["column"], key=lambda entry: entry.get("of", [""])):
        family = list(entries)
        for number, one in enumerate(of):
            for entry in family:
                words = {"of": one, "as": entry.get("as", of)[number]}
                yield _column(entry, {**phrases, **words}, inputs)


def _column(
    entry: Mapping[str, Any], words: Mapping[str, str], inputs: Mapping[str, list[str]]
) -> Column:
    def text(key: str) -> str:
        filled = entry.get(key, "").replace("{}", "\0")  # where a page puts the value
        return " ".join(filled.format_map(words).split()).replace("\0", "{}")

    def names(key: str) -> tuple[str, ...]:
        every = (
            inputs[name[1:]] if name.startswith("@") else [name.format_map(words)]
            for name in entry.get(key, ())
        )
        return tuple(dict.fromkeys(name for some in every for name in some))

    needs: Any = names("needs")
    is_number = "type" not in entry
    ends = entry.get("range", (0.0, math.inf)) if is_number else (-math.inf, math.inf)
    low, high = (float(end) if math.isfinite(end) else None for end in ends)
    return Column(
        name=text("name"),
        dtype=entry.get("type", "float"),
        unit=entry.get("unit", "1"),
        meaning=text("meaning"),
        sources=names("from"),
        disabled_by=text("unknown"),
        aliases=names("search"),
        needs=needs,
        optional=names("optional"),
        short=text("short"),
        low=low,
        high=high,
        words=tuple(entry.get("words", ())),
        **{key: entry[key] for key in _AS_WRITTEN if key in entry},
    )


_AS_WRITTEN = ("usual", "baseline_only", "detected", "stored")
COLUMNS: tuple[Column, ...] = tuple(
    _columns(Path(__file__).with_name("columns.toml").read_text(encoding="utf-8"))
)
BY_NAME: Mapping[str, Column] = {column.name: column for column in COLUMNS}
# Columns that detectors with a past add to the minutes.
DETECTED: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.detected)
# Texts beside the columns of speed: what it is compared with, why it is unknown.
TEXTS = ("speed_reference", "speed_unknown_reason", "speed_unknown_code")

_PADS_NOTHING = (
    "exists only where batches are padded (static and dynamic batchers); "
    "vLLM batches continuously and pads nothing"
)
NOT_CONTINUOUS: Mapping[str, str] = dict.fromkeys(
    ("batch_efficiency", "padding waste", "bucketing"), _PADS_NOTHING
)
