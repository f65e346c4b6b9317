"""Who outside hears that driftwatch still watches."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from driftwatch.settings.values import File, Labels, Seconds, SecretUrl, Url, WithSecrets, one_of


class HeartbeatSettings(WithSecrets):
    """Where heartbeats go, and how often."""

    url: SecretUrl | None = Field(None, description="URL that is pinged; may hold a token")
    url_file: File | None = Field(None, description="file that holds the URL")
    alertmanager: Url | None = Field(
        None, description="Alertmanager in which DriftwatchWatchdog fires"
    )
    labels: Labels = Field(
        default_factory=dict, description="labels of that alert, where several driftwatches post it"
    )
    every: Seconds = Field(60.0, ge=1.0, description="time between two heartbeats")
    allow_link_local: bool = Field(False, description="permit link-local and metadata addresses")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "url", "url_file", required=False)
        if not self.pings and self.alertmanager is None:
            raise ValueError("give url_file, url or alertmanager")
        return self

    @property
    def pings(self) -> bool:
        """Whether a URL is pinged."""
        return self.url is not None or self.url_file is not None
