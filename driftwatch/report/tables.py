"""Tables of texts: what every form of the report draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from driftwatch.notify.numbers import clean, moment

Document = Mapping[str, Any]
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Section:
    """One heading with its table."""

    key: str  # short and stable, for links
    title: str
    header: tuple[str, ...] = ()  # empty = no table
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()  # sentences below it
    numeric: frozenset[int] = frozenset()  # columns that are numbers, from 0


def table(
    key: str,
    title: str,
    columns: Mapping[str, Callable[[Any], str]],
    rows: Iterable[Any],
    notes: tuple[str, ...] = (),
    numeric: Iterable[int] = (),
) -> Iterator[Section]:
    """A section of one table, by column: header and text of a row's cell; none without rows."""
    texts = tuple(tuple(clean(text(row)) for text in columns.values()) for row in rows)
    if texts:
        yield Section(key, title, tuple(columns), texts, notes, frozenset(numeric))


def or_unknown(value: float | None, write: Callable[[float], str]) -> str:
    """A number as text, or that it is unknown."""
    return UNKNOWN if value is None else write(value)


def time_text(text: str) -> str:
    """A time of the document as people read it."""
    return moment(datetime.fromisoformat(text), None)


def speed_text(ratio: float) -> str:
    """A speed at equal load, which may lie on either side of the baseline's.

    >>> speed_text(0.996), speed_text(1.012)
    ('100 %', '101 %')
    """
    return f"{100 * ratio:.0f} %"
