"""When the weekly report is made and who gets it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from driftwatch.settings.values import Name
from driftwatch.yaml_models import Part

Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


class ReportSettings(Part):
    """When the weekly report is made, and who gets it."""

    weekday: Weekday = Field("monday", description="the day on which it is made")
    hour: int = Field(7, ge=0, le=23, strict=True, description="the hour, UTC")
    receivers: tuple[Name, ...] = Field(
        (), description="names of the receivers that get it; without any all of them"
    )

    @field_validator("receivers")
    @classmethod
    def _check_receivers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"named twice: {', '.join(twice)}")
        return names
