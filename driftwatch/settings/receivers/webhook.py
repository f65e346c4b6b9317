"""A server that takes pages as JSON."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from driftwatch.settings.values import File, Secret, SecretUrl, WithSecrets, one_of


class WebhookReceiver(WithSecrets):
    """Any server that takes the page as JSON, in driftwatch's format or in Alertmanager's."""

    url: SecretUrl | None = Field(None, description="where pages are posted; may hold a token")
    url_file: File | None = Field(None, description="file that holds the URL")
    secret: Secret | None = Field(None, description="key of the HMAC signature; better in a file")
    secret_file: File | None = Field(None, description="file that holds the key")
    format: Literal["driftwatch", "alertmanager"] = Field(
        "driftwatch", description="the page's JSON, or what Alertmanager posts to a webhook"
    )
    allow_link_local: bool = Field(False, description="permit link-local and metadata addresses")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "url", "url_file")
        one_of(self, "secret", "secret_file", required=False)
        return self
