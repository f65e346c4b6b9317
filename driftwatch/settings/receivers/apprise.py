"""One of the services that Apprise knows."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from driftwatch.settings.values import File, Secret, WithSecrets, one_of


class AppriseReceiver(WithSecrets):
    """One of the services that Apprise knows (Teams, Telegram, ntfy, ...): best effort."""

    address: Secret | None = Field(None, description="Apprise's URL of it; better in a file")
    address_file: File | None = Field(None, description="file that holds Apprise's URL of it")
    allow_link_local: bool = Field(False, description="permit link-local and metadata addresses")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "address", "address_file")
        return self
