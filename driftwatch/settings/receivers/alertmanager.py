"""An Alertmanager, or all of a cluster."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from driftwatch.settings.sources import BasicAuth
from driftwatch.settings.values import File, Labels, Url, WithSecrets, one_of
from driftwatch.yaml_models import Duration

# Alertmanager takes an alert that is not posted again for so many intervals for resolved
INTERVALS_OF_AN_ALERT = 4


class AlertmanagerReceiver(WithSecrets):
    """An Alertmanager, or all of a cluster."""

    urls: tuple[Url, ...] = Field(
        min_length=1, description="base URL of each Alertmanager of the cluster"
    )
    interval: Annotated[Duration, Field(ge=5, le=3600)] = Field(
        60.0, description="how often what fires is posted again; after 4 of them it is resolved"
    )
    labels: Labels = Field(default_factory=dict, description="labels that every alert gets")
    bearer_token_file: File | None = Field(None, description="file that holds a bearer token")
    basic_auth: BasicAuth | None = Field(None, description="user and password")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "bearer_token_file", "basic_auth", required=False)
        return self
