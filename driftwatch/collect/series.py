"""One line of a metrics page: which series it is and what driftwatch reads from it.

Labels are read by the maintained parser of ``prometheus_client``, one line at a time, and only
for series that were not seen before: their text is the key of a cache that outlives pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client.parser import text_string_to_metric_families

from driftwatch.collect.registry import Metric, wire_names

Part = Literal["value", "sum", "count", "bucket", "labels"]

# The maintained parser is quadratic in the quotes of one line: 16 KB of them take it 42 ms. vLLM's
# longest line, cache_config_info, has 1.5 KB and 74 quotes.
MAX_LINE_BYTES = 16 * 1024
MAX_LINE_QUOTES = 512

_SUFFIXES: Mapping[str, Part] = {"_sum": "sum", "_count": "count", "_bucket": "bucket"}


@dataclass(frozen=True, slots=True)
class Reading:
    """What the registry reads from a series."""

    metric: Metric  # the metric it belongs to
    rank: int  # 0 for the current wire name, 1 for the newest old name, and so on
    part: Part  # the value itself, or the part of a histogram, or the labels of an info metric
    # upper edge of a bucket (NaN where ``le`` is no number), None for other parts
    edge: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A series of a page; compared by identity, the cache hands out one object per text."""

    text: str  # name and labels as on the page
    name: str  # sample name, suffix included
    labels: Mapping[str, str]  # label name → value, unescaped
    readings: tuple[Reading, ...]  # what is read from it; empty for series that nothing reads


@dataclass(frozen=True, slots=True)
class Line:
    """A sample line as the maintained parser read it."""

    series: Series  # name and labels
    value: float  # the sample; may be NaN or infinite
    # the line is exactly "series, one space, value", so that the series text can be looked up next
    # time; not so with a timestamp, tabs or an exemplar
    plain: bool


def _sample_names() -> dict[str, tuple[Reading, ...]]:
    found: dict[str, tuple[Reading, ...]] = {}
    for wire, metrics in wire_names().items():
        for metric in metrics:
            ranks = (metric.wire_name, *(old.wire_name for old in metric.old_names))
            rank = ranks.index(wire)
            parts: Mapping[str, Part] = {"": "labels" if metric.type == "info" else "value"}
            for suffix, part in (_SUFFIXES if metric.type == "histogram" else parts).items():
                reading = Reading(metric, rank, part)
                found[wire + suffix] = (*found.get(wire + suffix, ()), reading)
    return found


_READINGS: Mapping[str, tuple[Reading, ...]] = _sample_names()


def _edge(labels: Mapping[str, str]) -> float:
    try:
        return float(labels["le"])
    except (KeyError, ValueError):
        return math.nan


def _readings(name: str, labels: Mapping[str, str]) -> tuple[Reading, ...]:
    return tuple(
        Reading(r.metric, r.rank, r.part, _edge(labels)) if r.part == "bucket" else r
        for r in _READINGS.get(name, ())
        if all(labels.get(label) == value for label, value in r.metric.labels)
    )


def read_line(line: bytes) -> Line | str | None:
    """One line of a page → the sample, the reason why it is none, or None for no sample at all.

    Args:
        line: without its newline. Blank lines and comments give None.
    """
    bare = line.strip()
    if not bare or bare.startswith(b"#"):
        return None
    if len(line) > MAX_LINE_BYTES:
        return f"{len(line)} bytes long, more than {MAX_LINE_BYTES}"
    if (quotes := line.count(b'"')) > MAX_LINE_QUOTES:
        return f"{quotes} quotes, more than {MAX_LINE_QUOTES}"
    try:
        text = bare.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8 at its byte {error.start + 1}"
    try:
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    except (ValueError, IndexError, KeyError):
        samples = []
    if len(samples) != 1:
        shown = text if len(text) <= 80 else text[:80] + "…"
        return f"not a sample: {shown!r}"
    (sample,) = samples
    try:
        value = float(sample.value)
    except OverflowError:  # a whole number of hundreds of digits
        value = math.inf if sample.value > 0 else -math.inf
    head, _, tail = line.rpartition(b" ")
    plain = sample.timestamp is None and bool(head) and same(number(tail), value)
    text = head.decode("utf-8").strip() if plain else text
    readings = _readings(sample.name, sample.labels)
    return Line(Series(text, sample.name, dict(sample.labels), readings), value, plain)


def number(token: bytes) -> float | None:
    """A sample value, or None where it is none (``1_000`` is Python's, not the format's)."""
    try:
        return None if b"_" in token else float(token)
    except ValueError:
        return None


def same(one: float | None, other: float | None) -> bool:
    """Equal values; NaN is NaN, None is nothing."""
    if one is None or other is None:
        return False
    return one == other or (math.isnan(one) and math.isnan(other))


class SeriesCache:
    """Series text → series, kept between pages and bounded in entries and bytes.

    Args:
        max_bytes: sum of their texts; the objects made from them take about five times that.
    """

    def __init__(self, max_entries: int = 100_000, max_bytes: int = 16 * 2**20) -> None:
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self._found: dict[bytes, Series] = {}
        self._texts: dict[bytes, bytes] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def get(self, text: bytes) -> Series | None:
        """The series with this text, None where it was not seen (or was dropped since)."""
        return self._found.get(text)

    def add(self, text: bytes, series: Series) -> None:
        """Keep a series; over a bound the older half goes."""
        self._found[text] = series
        self._bytes += len(text)
        if len(self._found) > self.max_entries or self._bytes > self.max_bytes:
            # a new dict: deleting from the front of a large one is quadratic
            self._found = dict(list(self._found.items())[len(self._found) // 2 :])
            self._bytes = sum(map(len, self._found))

    def text(self, text: bytes) -> bytes:
        """The same bytes as one shared object: a fleet's pages differ in a few lines only."""
        if len(self._texts) > self.max_entries:
            self._texts = {}
        return self._texts.setdefault(text, text)
