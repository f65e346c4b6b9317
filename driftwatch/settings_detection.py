"""The part of the configuration that is about detection."""

from __future__ import annotations

from pydantic import Field, field_validator

from driftwatch.settings_values import Day, Part


class Holiday(Part):
    """A day that is no ordinary day of the week."""

    date: Day = Field(description="the day, UTC")
    name: str = Field(min_length=1, max_length=63, description="what is printed of it")


class DetectionSettings(Part):
    """What a person decides about detection."""

    false_episodes_per_server_month: float = Field(
        0.25,
        gt=0,
        le=100,
        strict=True,
        description="false episodes per server and month that thresholds may cost",
    )
    holidays: tuple[Holiday, ...] = Field(
        (), max_length=1000, description="days not compared with the same weekday"
    )

    @field_validator("holidays")
    @classmethod
    def _check_holidays(cls, days: tuple[Holiday, ...]) -> tuple[Holiday, ...]:
        dates = [day.date for day in days]
        twice = sorted({f"{date}" for date in dates if dates.count(date) > 1})
        if twice:
            raise ValueError(f"named twice: {', '.join(twice)}")
        return days
