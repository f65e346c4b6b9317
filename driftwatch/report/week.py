"""A week: Monday to Sunday, UTC, named as ISO 8601 does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from driftwatch.errors import UsageError

_NAME = re.compile(r"(\d{4})-W(\d{1,2})")
LENGTH = timedelta(days=7)
_WHOLE = 0.99  # of a week: its first and its last scrape do not lie on its ends


@dataclass(frozen=True, slots=True)
class Week:
    """One week."""

    year: int  # of ISO 8601, which is not always that of every day in it
    number: int  # 1 to 53

    @property
    def name(self) -> str:
        """As commands take it.

        >>> Week(2026, 5).name
        '2026-W05'
        """
        return f"{self.year:04d}-W{self.number:02d}"

    @property
    def start(self) -> datetime:
        """Monday 00:00 UTC."""
        return datetime.combine(
            date.fromisocalendar(self.year, self.number, 1), time(0), tzinfo=UTC
        )

    @property
    def end(self) -> datetime:
        """The Monday after it, 00:00 UTC; itself not in the week."""
        return self.start + LENGTH

    @property
    def title(self) -> str:
        """How people read it.

        >>> Week(2026, 47).title
        'Week 47, Mon 16 – Sun 22 Nov 2026 UTC'
        >>> Week(2026, 53).title
        'Week 53, Mon 28 Dec 2026 – Sun 3 Jan 2027 UTC'
        """
        first, last = self.start, self.end - timedelta(days=1)
        year = "" if first.year == last.year else f" {first.year}"
        month = "" if first.month == last.month else f" {first:%b}"
        return (
            f"Week {self.number}, {first:%a} {first.day}{month}{year} – "
            f"{last:%a} {last.day} {last:%b} {last.year} UTC"
        )

    @property
    def before(self) -> Week:
        """The week before it."""
        return week_of(self.start - timedelta(days=1))


def day_time(at: datetime) -> str:
    """``Wed 11:00``."""
    return f"{at:%a %H:%M}"


def stretch_text(start: datetime, end: datetime | None) -> str:
    """``Wed 09:00–15:00 UTC``, ``Sat 23:10 – Sun 01:00 UTC``, ``since Sun 22:00 UTC``."""
    if end is None:
        return f"since {day_time(start)} UTC"
    if start.date() == end.date():
        return f"{day_time(start)}–{end:%H:%M} UTC"
    return f"{day_time(start)} – {day_time(end)} UTC"


def minute(at: datetime) -> str:
    """As ``--at`` takes it."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def week_of(at: datetime) -> Week:
    """The week that a time lies in."""
    year, number, _ = at.astimezone(UTC).date().isocalendar()
    return Week(year, number)


def last_whole(at: datetime) -> Week:
    """The last week that was over at a time."""
    return week_of(at).before


def week_held(first: datetime, last: datetime) -> Week:
    """The last whole week of a stretch; where none is whole, the one with most of it.

    >>> week_held(datetime(2026, 11, 16, tzinfo=UTC), datetime(2026, 11, 24, tzinfo=UTC)).name
    '2026-W47'
    """
    best, most, week = week_of(first), 0.0, week_of(last)
    while week.end > first:
        held = (min(last, week.end) - max(first, week.start)) / LENGTH
        if held >= _WHOLE:
            return week
        best, most = (week, held) if held > most else (best, most)
        week = week.before
    return best


def week_named(text: str) -> Week:
    """A week by its name.

    >>> week_named("2026-W47")
    Week(year=2026, number=47)

    Raises UsageError: it is none, or that year has no such week.
    """
    match = _NAME.fullmatch(text.strip().upper())
    help_text = "write 2026-W47: the year and the week of ISO 8601"
    if match is None:
        raise UsageError(f"--week: {text!r} names no week", help_text=help_text)
    year, number = int(match[1]), int(match[2])
    try:
        date.fromisocalendar(year, number, 1)
        date.fromisocalendar(year, number, 7)
    except ValueError:
        raise UsageError(f"--week: {year} has no week {number}", help_text=help_text) from None
    return Week(year, number)
