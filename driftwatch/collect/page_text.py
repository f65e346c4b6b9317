"""The samples of a page of Prometheus text, whatever they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from driftwatch.collect.series import Series, SeriesCache, number, read_line

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
    lines: list[int] = field(default_factory=list)  # number of the line that each is on, from 0
    # lines that are no samples, with their number from 1 and why
    doubts: list[str] = field(default_factory=list)
    plain: bool = True  # every sample line is exactly "series, one space, value"


def page_samples(body: bytes, cache: SeriesCache) -> Samples | str:
    """Every sample of a page, whatever it is of, or why it is no page.

    Args:
        cache: series that were seen before; new ones are added.
    """
    lines = page_lines(body)
    if isinstance(lines, str):
        return lines
    found = line_samples(lines, cache)
    found.doubts[:] = named(found.doubts)
    return no_samples(body, lines, bool(found.series), found.doubts) or found


def page_lines(body: bytes) -> list[bytes] | str:
    """The lines of a page, or why it is none."""
    if not body:
        return "empty page (0 bytes)"
    if len(body) > MAX_PAGE_BYTES:
        return f"page refused: {len(body)} bytes, more than {MAX_PAGE_BYTES}"
    start = body[:256].lstrip()
    if start.startswith(b"<"):
        return f"HTML, not a metrics page: it starts with {_quoted(start)}"
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
    found = Samples()
    for i, line in enumerate(lines):
        text, _, tail = line.rpartition(b" ")
        known = cache.get(text) if text else None
        value = number(tail) if known else None
        if known is None or value is None:
            read = read_line(line)
            if read is None:
                continue
            if isinstance(read, str):
                found.doubts.append(f"line {i + 1}: {read}")
                continue
            known, value = read.series, read.value
            if read.plain:
                cache.add(text, known)
            found.plain = found.plain and read.plain
        found.series.append(known)
        found.values.append(value)
        found.lines.append(i)
    return found


def named(doubts: Sequence[str]) -> tuple[str, ...]:
    """The first doubts, and how many more there are."""
    rest = len(doubts) - _NAMED_LINES
    if rest <= 0:
        return tuple(doubts)
    return (*doubts[:_NAMED_LINES], f"and {rest} more lines that are no samples")


def _quoted(start: bytes) -> str:
    return repr(start[:60].decode("utf-8", "replace"))
