"""A PagerDuty service, through the Events API v2."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from driftwatch.settings.values import File, Secret, Url, WithSecrets, one_of

_BASE = {"us": "https://events.pagerduty.com", "eu": "https://events.eu.pagerduty.com"}


class PagerdutyReceiver(WithSecrets):
    """A PagerDuty service, through the Events API v2."""

    routing_key: Secret | None = Field(None, description="integration key; better in a file")
    routing_key_file: File | None = Field(None, description="file that holds the integration key")
    region: Literal["us", "eu"] = Field("us", description="where the account is: us or eu")
    url: Url | None = Field(None, description="base URL in place of the region's, e.g. a relay")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "routing_key", "routing_key_file")
        return self

    @property
    def base_url(self) -> str:
        """Where events are posted, without the path."""
        return (self.url or _BASE[self.region]).rstrip("/")
