"""The text of a page: its lines, its samples, and why it is none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

# The maintained parser is quadratic in the quotes of one line: 16 KB of them take it 42 ms. vLLM's
# longest line, cache_config_info, has 1.5 KB and 74 quotes.
MAX_LINE_BYTES = 16 * 1024
MAX_LINE_QUOTES = 512


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A series of a page; compared by identity, the cache hands out one object per text."""

    text: str  # name and labels as on the page
    name: str  # sample name, suffix included
    labels: Mapping[str, str]  # label name → value, unescaped


@dataclass(frozen=True, slots=True)
class Line:
    """A sample line as the maintained parser read it."""

    series: Series  # name and labels
    value: float  # the sample; may be NaN or infinite
    # the line is exactly "series, one space, value", so that the series text can be looked up next
    # time; not so with a timestamp, tabs or an exemplar
    plain: bool


def read_line(line: bytes) -> Line | str | None:
    """One line of a page → the sample, the reason why it is none, or None for no sample at all.

    ``line``: without its newline. Blank lines and comments give None.
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
        start = text if len(text) <= 80 else text[:80] + "…"
        return f"not a sample: {start!r}"
    (sample,) = samples
    try:
        value = float(sample.value)
    except OverflowError:  # a whole number of hundreds of digits
        value = math.inf if sample.value > 0 else -math.inf
    head, _, tail = line.rpartition(b" ")
    plain = sample.timestamp is None and bool(head) and same(number(tail), value)
    text = head.decode("utf-8").strip() if plain else text
    return Line(Series(text, sample.name, dict(sample.labels)), value, plain)


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

    ``max_bytes``: sum of their texts; the objects made from them take about five times that.
    """

    def __init__(self, max_entries: int = 100_000, max_bytes: int = 16 * 2**20) -> None:
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self._series: dict[bytes, Series] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._series)

    def get(self, text: bytes) -> Series | None:
        """The series with this text, None where it was not seen (or was dropped since)."""
        return self._series.get(text)

    def add(self, text: bytes, series: Series) -> None:
        """Keep a series; over a bound the older half goes."""
        self._series[text] = series
        self._bytes += len(text)
        if len(self._series) > self.max_entries or self._bytes > self.max_bytes:
            # a new dict: deleting from the front of a large one is quadratic
            self._series = dict(list(self._series.items())[len(self._series) // 2 :])
            self._bytes = sum(map(len, self._series))


# Recorded pages have up to 450 lines and 38 KB an engine: room for 250 engines on one page. Reading
# a page for the first time costs 30 µs a line, so that one of these bounds costs a tick 3 s.
MAX_PAGE_BYTES = 10 * 2**20
MAX_PAGE_LINES = 100_000

_NAMED_LINES = 10  # broken lines named per page; the others are counted


@dataclass(slots=True)
class Samples:
    """The samples of a page, in its order."""

    series: list[Series] = field(default_factory=list)  # of each sample
    values: list[float] = field(default_factory=list)  # of each sample; may be NaN or infinite
    # lines that are no samples, with their number from 1 and why
    doubts: list[str] = field(default_factory=list)


def page_samples(body: bytes, cache: SeriesCache) -> Samples | str:
    """Every sample of a page, whatever it is of, or why it is no page.

    ``cache``: series that were seen before; new ones are added.
    """
    lines = page_lines(body)
    if isinstance(lines, str):
        return lines
    samples = line_samples(lines, cache)
    samples.doubts[:] = named(samples.doubts)
    return no_samples(body, lines, bool(samples.series), samples.doubts) or samples


def page_lines(body: bytes) -> list[bytes] | str:
    """The lines of a page, or why it is none."""
    if not body:
        return "empty page (0 bytes)"
    if len(body) > MAX_PAGE_BYTES:
        return f"page refused: {len(body)} bytes, more than {MAX_PAGE_BYTES}"
    start = body[:256].lstrip()
    if start.startswith(b"<"):
        return f"answers HTML, not metrics: it starts with {_quoted(start)}"
    count = body.count(b"\n")
    if count > MAX_PAGE_LINES:
        return f"page refused: {count} lines, more than {MAX_PAGE_LINES}"
    return (body.replace(b"\r\n", b"\n") if b"\r" in body else body).split(b"\n")


def is_cut(lines: list[bytes]) -> bool:
    """The last line has no end: the rest of the page is missing."""
    return lines[-1] != b"" and lines[-1].strip() != b"# EOF"


def no_samples(
    body: bytes, lines: list[bytes], any_sample: bool, doubts: Sequence[str]
) -> str | None:
    """Why nothing of the page is used, None where it is."""
    start = body[:256].lstrip()
    if not any_sample and doubts and not start.startswith(b"#"):
        return f"not a metrics page: no line of it is a sample, it starts with {_quoted(start)}"
    if is_cut(lines):
        # counters are cumulative: the next scrape brings what this one lost
        return f"page cut off at byte {len(body)}, line {len(lines)}"
    return None if any_sample else "no sample on the page"


def line_samples(lines: list[bytes], cache: SeriesCache) -> Samples:
    """The samples of a page, line by line; series that were not seen before go to the cache."""
    samples = Samples()
    for i, line in enumerate(lines):
        text, _, tail = line.rpartition(b" ")
        series = cache.get(text) if text else None
        value = number(tail) if series else None
        if series is None or value is None:
            parsed = read_line(line)
            if parsed is None:
                continue
            if isinstance(parsed, str):
                samples.doubts.append(f"line {i + 1}: {parsed}")
                continue
            series, value = parsed.series, parsed.value
            if parsed.plain:
                cache.add(text, series)
        samples.series.append(series)
        samples.values.append(value)
    return samples


def named(doubts: Sequence[str]) -> tuple[str, ...]:
    """The first doubts, and how many more there are."""
    rest = len(doubts) - _NAMED_LINES
    if rest <= 0:
        return tuple(doubts)
    return (*doubts[:_NAMED_LINES], f"and {rest} more lines that are no samples")


def _quoted(start: bytes) -> str:
    return repr(start[:60].decode("utf-8", "replace"))
