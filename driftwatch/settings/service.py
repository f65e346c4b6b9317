"""Who hears from the service besides receivers of pages: the weekly report, and a heartbeat."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from driftwatch.settings.values import (
    File,
    Name,
    SecretUrl,
    WithSecrets,
    each_once,
    one_of,
)
from driftwatch.yaml_models import Part


class ReportSettings(Part):
    """Who gets the weekly report, which is made on Mondays at 07:00 UTC."""

    receivers: tuple[Name, ...] = Field(
        (), description="names of the receivers that get it; without any all of them"
    )

    @field_validator("receivers")
    @classmethod
    def _check_receivers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        each_once(names)
        return names


class HeartbeatSettings(WithSecrets):
    """Which URL hears a heartbeat every minute."""

    url: SecretUrl | None = Field(None, description="URL that is pinged; may hold a token")
    url_file: File | None = Field(None, description="file that holds the URL")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "url", "url_file")
        return self
