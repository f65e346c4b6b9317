"""The text of a page: its lines, its samples, and why it has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from prometheus_client.parser import text_string_to_metric_families

# The maintained parser is quadratic in the quotes of one line: 16 KB of them take it 42 ms. vLLM's
# longest line, cache_config_info, has 1.5 KB and 74 quotes.
MAX_LINE_BYTES = 16 * 1024
MAX_LINE_QUOTES = 512
# Recorded pages have up to 450 lines and 38 KB an engine: room for 250 engines on one page. Reading
# a page for the first time costs 30 µs a line, so that one of these bounds costs a tick 3 s.
MAX_PAGE_BYTES = 10 * 2**20
MAX_PAGE_LINES = 100_000

_MAX_REMEMBERED = 16 * 2**20  # bytes of texts of series; beyond it all are forgotten
_NAMED_LINES = 10  # broken lines named per page; the others are counted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    """A sample line as the maintained parser read it."""

    labels: Mapping[str, str]  # with ``__name__``, the sample's name with its suffix
    value: float  # may be NaN or infinite
    # the line is exactly "series, one space, value", so that the series can be looked up by its
    # text next time; not so with a timestamp, tabs or an exemplar
    plain: bool


def read_line(line: bytes) -> Line | str | None:
    """One line of a page → its sample, the reason why it is none, or None for a line without any.

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
    plain = sample.timestamp is None and bool(head) and same(_number(tail), value)
    return Line({**sample.labels, "__name__": sample.name}, value, plain)


def _number(token: bytes) -> float | None:
    """A sample value, or None where it is no number (``1_000`` is Python's, not the format's)."""
    try:
        return None if b"_" in token else float(token)
    except ValueError:
        return None


def same(one: float | None, other: float | None) -> bool:
    """Equal values; NaN is NaN, None is nothing."""
    if one is None or other is None:
        return False
    return one == other or (math.isnan(one) and math.isnan(other))


@dataclass(slots=True)
class PageSamples(Generic[T]):
    """The samples of a page, in its order."""

    series: list[T] = field(default_factory=list)  # of each sample
    values: list[float] = field(default_factory=list)  # of each sample; may be NaN or infinite
    doubts: list[str] = field(default_factory=list)  # lines that are no samples: number, and why


class PageText(Generic[T]):
    """Reads the text of pages; remembers what their series are from page to page.

    ``read_series``: labels with ``__name__`` → what stands for that series in the samples;
    ``max_entries``: texts that are remembered; beyond it all are forgotten.
    """

    def __init__(
        self, read_series: Callable[[Mapping[str, str]], T], max_entries: int = 100_000
    ) -> None:
        self._read_series, self._max_entries = read_series, max_entries
        self.forget()

    def forget(self) -> None:
        """Every series is read anew."""
        self._series: dict[bytes, T] = {}
        self._bytes = 0

    def samples(self, body: bytes) -> PageSamples[T] | str:
        """Every sample of a page, or why the page cannot be used."""
        lines = _lines(body)
        if isinstance(lines, str):
            return lines
        found: PageSamples[T] = PageSamples()
        for i, line in enumerate(lines):
            text, _, tail = line.rpartition(b" ")
            series = self._series.get(text) if text else None
            value = None if series is None else _number(tail)
            if series is None or value is None:
                parsed = read_line(line)
                if parsed is None:
                    continue
                if isinstance(parsed, str):
                    found.doubts.append(f"line {i + 1}: {parsed}")
                    continue
                series, value = self._read_series(parsed.labels), parsed.value
                if parsed.plain:
                    self._remember(text, series)
            found.series.append(series)
            found.values.append(value)
        rest = len(found.doubts) - _NAMED_LINES
        if rest > 0:
            found.doubts[_NAMED_LINES:] = [f"and {rest} more lines that are no samples"]
        return _why_unused(body, lines, bool(found.series), found.doubts) or found

    def _remember(self, text: bytes, series: T) -> None:
        if len(self._series) >= self._max_entries or self._bytes + len(text) > _MAX_REMEMBERED:
            self.forget()
        self._series[text] = series
        self._bytes += len(text)


def _lines(body: bytes) -> list[bytes] | str:
    """The lines of a page, or why it cannot be used."""
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


def _why_unused(
    body: bytes, lines: list[bytes], any_sample: bool, doubts: Sequence[str]
) -> str | None:
    """Why nothing of the page is used, None where it is."""
    start = body[:256].lstrip()
    if not any_sample and doubts and not start.startswith(b"#"):
        return f"not a metrics page: no line of it is a sample, it starts with {_quoted(start)}"
    if lines[-1] != b"" and lines[-1].strip() != b"# EOF":
        # counters are cumulative: the next scrape brings what this one lost
        return f"page cut off at byte {len(body)}, line {len(lines)}"
    return None if any_sample else "no sample on the page"


def _quoted(start: bytes) -> str:
    return repr(start[:60].decode("utf-8", "replace"))
