"""Who hears from the service besides receivers of pages: the weekly report, and a heartbeat."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from driftwatch.settings.values import (
    File,
    Name,
    Seconds,
    SecretUrl,
    WithSecrets,
    one_of,
)
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


class HeartbeatSettings(WithSecrets):
    """Which URL hears heartbeats, and how often."""

    url: SecretUrl | None = Field(None, description="URL that is pinged; may hold a token")
    url_file: File | None = Field(None, description="file that holds the URL")
    every: Seconds = Field(60.0, ge=1.0, description="time between two heartbeats")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "url", "url_file")
        return self
