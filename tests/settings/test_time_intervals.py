"""Time intervals: when a time lies in one, also around midnight, month ends and clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from driftwatch.settings.time_intervals import NamedIntervals, TimeInterval


def interval(**fields: Any) -> TimeInterval:
    return TimeInterval.model_validate(fields)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NIGHT = {"times": [{"start_time": "00:00", "end_time": "06:00"}]}
LATE = {"times": [{"start_time": "22:30", "end_time": "24:00"}]}


@pytest.mark.parametrize(
    ("fields", "inside", "outside"),
    [
        # the start is inside, the end is not
        (NIGHT, ["2026-03-02T00:00", "2026-03-02T05:59:59"], ["2026-03-02T06:00"]),
        (LATE, ["2026-03-02T22:30", "2026-03-02T23:59:59"], ["2026-03-02T22:29", "2026-03-03"]),
        # both ends of a range are inside
        (
            {"weekdays": ["monday:friday"]},
            ["2026-03-02", "2026-03-06T23:59"],
            ["2026-03-01T23:59", "2026-03-07"],
        ),
        ({"weekdays": ["sunday", "Saturday"]}, ["2026-03-01", "2026-03-07"], ["2026-03-02"]),
        ({"days_of_month": ["1:5", "-3:-1"]}, ["2026-02-05", "2026-02-26"], ["2026-02-25"]),
        ({"days_of_month": [31]}, ["2026-03-31"], ["2026-02-28", "2026-03-01"]),
        ({"days_of_month": ["27:-1"]}, ["2024-02-29", "2026-02-28"], ["2026-02-26"]),
        ({"days_of_month": ["-31:-30"]}, ["2026-03-01", "2026-03-02"], ["2026-02-01"]),
        (
            {"months": ["january:march", 12, "5:august"]},
            ["2026-01-01", "2026-03-31", "2026-12-31", "2026-05-01", "2026-08-31"],
            ["2026-04-30", "2026-09-01"],
        ),
        ({"years": ["2020:2022", 2030]}, ["2022-12-31", "2030-01-01"], ["2023-01-01"]),
        # every field must hold
        (
            NIGHT | {"weekdays": ["saturday"], "months": ["march"]},
            ["2026-03-07T01:00"],
            ["2026-03-07T07:00", "2026-03-06T01:00", "2026-04-04T01:00"],
        ),
        # in its time zone the day, the month and the year may be other ones
        (
            {"years": [2026], "days_of_month": [1], "location": "Asia/Tokyo"},
            ["2025-12-31T15:00", "2026-01-01T14:59"],
            ["2025-12-31T14:59", "2026-01-01T15:00"],
        ),
    ],
)
def test_what_lies_inside(fields: dict[str, Any], inside: list[str], outside: list[str]) -> None:
    one = interval(**fields)
    assert [text for text in inside if not one.contains(at(text))] == []
    assert [text for text in outside if one.contains(at(text))] == []


def test_a_clock_change_moves_the_interval_not_its_hours() -> None:
    berlin = interval(**NIGHT, location="Europe/Berlin")
    for day in ("2026-03-28", "2026-03-30", "2026-10-24", "2026-10-26"):
        midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo("Europe/Berlin"))
        start = midnight.astimezone(UTC)
        assert not berlin.contains(start - timedelta(seconds=1))
        assert berlin.contains(start)
        assert not berlin.contains(start + timedelta(hours=6))
    # 29 March has no 02:00 to 03:00, 25 October has it twice
    for day, hours in (("2026-03-29", 5), ("2026-10-25", 7)):
        midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo("Europe/Berlin"))
        minutes = [midnight.astimezone(UTC) + timedelta(minutes=n) for n in range(12 * 60)]
        assert sum(berlin.contains(minute) for minute in minutes) == hours * 60


def test_a_name_holds_where_one_of_its_intervals_does() -> None:
    named = NamedIntervals.model_validate(
        {"name": "off-hours", "time_intervals": [NIGHT, {"weekdays": ["saturday", "sunday"]}]}
    )
    times = ("2026-03-02T01:00", "2026-03-07T12:00", "2026-03-02T12:00")
    assert [named.contains(at(text)) for text in times] == [True, True, False]
