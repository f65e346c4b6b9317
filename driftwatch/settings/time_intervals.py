"""Time intervals as Alertmanager writes them; names that rules and pools may be muted by.

Of one interval every field that it has must hold; of a field, one of its ranges; of a name, one of
its intervals. Ranges include both ends, but a time range its start alone. Read as Alertmanager
0.25's ``timeinterval`` does, except that an interval without any field is refused there too: it
would mute for ever.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Annotated, Self
from zoneinfo import ZoneInfo

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from driftwatch.settings.values import Name
from driftwatch.yaml_models import Part, fault, near

Range = tuple[int, int]  # first and last, both inside

# Alertmanager's week begins on Sunday, and no range goes over its end
WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
MONTHS = tuple(name.lower() for name in calendar.month_name[1:])
_TIME = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]|24:00")


def _ends(value: object, member: Callable[[str], int]) -> Range:
    """The numbers of ``a:b``, or of ``a``."""
    parts = str(value).lower().split(":")
    if isinstance(value, bool) or not isinstance(value, str | int) or len(parts) > 2:
        raise fault("value", "one value or a range first:last is wanted here")
    return member(parts[0]), member(parts[-1])


def _number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", text):
        raise fault("value", f"{text!r} is not a whole number")
    return int(text)


def _in_order(ends: Range, help_text: str | None = None) -> Range:
    if ends[0] > ends[1]:
        raise fault("value", "the range ends before it begins", help_text)
    return ends


def _weekdays(value: object) -> Range:
    def member(text: str) -> int:
        if text not in WEEKDAYS:
            raise fault("value", f"{text!r} is not a weekday", near(text, WEEKDAYS))
        return WEEKDAYS.index(text)

    return _in_order(_ends(value, member), "the week begins on Sunday: write two ranges")


def _months(value: object) -> Range:
    def member(text: str) -> int:
        if text in MONTHS:
            return MONTHS.index(text) + 1
        if not text.isdecimal() or not 1 <= int(text) <= 12:
            message = f"{text!r} is not a month"
            raise fault("value", message, near(text, MONTHS) or "1 to 12, or its name")
        return int(text)

    return _in_order(_ends(value, member), "write two ranges, one for each year")


def _years(value: object) -> Range:
    return _in_order(_ends(value, _number))


def _days_of_month(value: object) -> Range:
    first, last = ends = _ends(value, _number)
    if not all(1 <= abs(day) <= 31 for day in ends):
        raise fault("value", "a day of the month is 1 to 31, or -1 (the last) to -31")
    if first < 0 < last:
        raise fault("value", "the range begins at the month's end and ends at its beginning")
    # a day from the end is counted in the shortest month, as Alertmanager does
    _in_order((_of_shortest(first), _of_shortest(last)))
    return ends


def _of_shortest(day: int) -> int:
    return 28 + day if day < 0 else day


def _in_month(day: int, days: int) -> int:
    return days + day + 1 if day < 0 else day


def _minute(value: object) -> int:
    """Minutes since midnight."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise fault("value", "a time of day is written 08:30, the end of the day 24:00")
    return int(value[:2]) * 60 + int(value[3:])


def _location(value: object) -> tzinfo | None:
    """The time zone; None = this machine's."""
    if value == "Local":
        return None
    try:
        return UTC if value in ("", "UTC") else ZoneInfo(str(value))
    except (KeyError, ValueError, OSError):  # unknown, no file's name, a folder
        raise fault(
            "value", f"{value!r} is not a time zone", "a name such as Europe/Berlin, UTC, Local"
        ) from None


_AS_TEXT = WithJsonSchema({"type": ["string", "integer"]})
_Minute = Annotated[int, BeforeValidator(_minute), WithJsonSchema({"type": "string"})]
_Weekdays = Annotated[Range, BeforeValidator(_weekdays), WithJsonSchema({"type": "string"})]
_DaysOfMonth = Annotated[Range, BeforeValidator(_days_of_month), _AS_TEXT]
_Months = Annotated[Range, BeforeValidator(_months), _AS_TEXT]
_Years = Annotated[Range, BeforeValidator(_years), _AS_TEXT]
_Location = Annotated[tzinfo | None, BeforeValidator(_location), WithJsonSchema({"type": "string"})]


class TimeRange(Part):
    """A part of every day."""

    start_time: _Minute = Field(description="its start, 08:30")
    end_time: _Minute = Field(description="its end, which is outside; 24:00 ends the day")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.start_time >= self.end_time:
            help_text = "over midnight: one until 24:00, one from 00:00"
            raise fault("value", "end_time is not after start_time", help_text, inner=("end_time",))
        return self


class TimeInterval(Part):
    """A set of times."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    times: tuple[TimeRange, ...] = Field((), description="times of the day")
    weekdays: tuple[_Weekdays, ...] = Field((), description="saturday, or monday:friday")
    days_of_month: tuple[_DaysOfMonth, ...] = Field((), description="1:5, or -3:-1 from the end")
    months: tuple[_Months, ...] = Field((), description="december, 12, or june:august")
    years: tuple[_Years, ...] = Field((), description="2030, or 2030:2032")
    location: _Location = Field(UTC, description="time zone of all of them; without it UTC")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not any(getattr(self, name) for name in _FIELDS):
            message = "an interval without a field would mute for ever"
            raise fault("value", message, f"fields: {', '.join(_FIELDS)}")
        return self

    def contains(self, at: datetime) -> bool:
        """Whether an aware time lies in it."""
        here = at.astimezone(self.location)
        minute = here.hour * 60 + here.minute
        days = calendar.monthrange(here.year, here.month)[1]
        of_month = [(_in_month(a, days), _in_month(b, days)) for a, b in self.days_of_month]
        return (
            _holds([(one.start_time, one.end_time - 1) for one in self.times], minute)
            and _holds(self.weekdays, here.isoweekday() % 7)
            and _holds(of_month, here.day)
            and _holds(self.months, here.month)
            and _holds(self.years, here.year)
        )


_FIELDS = ("times", "weekdays", "days_of_month", "months", "years")


def _holds(ranges: Sequence[Range], value: int) -> bool:
    return not ranges or any(first <= value <= last for first, last in ranges)


class NamedIntervals(Part):
    """Time intervals under a name; a time in any of them is in it."""

    name: Name = Field(description="the name that rules and pools use")
    time_intervals: tuple[TimeInterval, ...] = Field(min_length=1, description="its intervals")

    def contains(self, at: datetime) -> bool:
        """Whether an aware time lies in one of them."""
        return any(one.contains(at) for one in self.time_intervals)


def interval_text(one: TimeInterval) -> str:
    """An interval in words: ``saturday to sunday, 22:00 to 24:00 UTC``."""
    parts = [
        *(f"{_clock(time.start_time)} to {_clock(time.end_time)}" for time in one.times),
        *(_range_text(ends, WEEKDAYS.__getitem__) for ends in one.weekdays),
        *(f"day {_range_text(ends, str)} of the month" for ends in one.days_of_month),
        *(_range_text(ends, lambda month: MONTHS[month - 1]) for ends in one.months),
        *(_range_text(ends, str) for ends in one.years),
    ]
    zone = "local time" if one.location is None else str(one.location)
    return f"{', '.join(parts)} {zone}"


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _range_text(ends: Range, name: Callable[[int], str]) -> str:
    first, last = map(name, ends)
    return first if first == last else f"{first} to {last}"
