"""Mail through a relay."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from driftwatch.settings.values import Count, File, Secret, WithSecrets, one_of

_PORTS = {"starttls": 587, "tls": 465, "none": 25}


def _address(text: str) -> str:
    """One plain address; a line end in it would become a header of its own."""
    local, at, domain = text.rpartition("@")
    plain = text.isascii() and text.isprintable() and not any(c in ' <>()[],;:\\"' for c in text)
    if not (at and local and domain and plain) or "@" in local or len(text) > 254:
        raise ValueError("an address is wanted here, such as oncall@example.org")
    return text


Address = Annotated[str, AfterValidator(_address)]
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:\[\]-]+$", max_length=253)]


class EmailReceiver(WithSecrets):
    """Mail through a relay (SMTP)."""

    host: Host = Field(description="name or address of the relay")
    port: Count | None = Field(
        None, le=65535, description="default 587 (starttls), 465 (tls), 25 (none)"
    )
    tls: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="starttls, tls from the first byte, or none"
    )
    sender: Address = Field(alias="from", description="whom mail is from")
    to: tuple[Address, ...] = Field(min_length=1, max_length=50, description="who gets it")
    user: str | None = Field(None, min_length=1, max_length=254, description="user of the relay")
    password: Secret | None = Field(None, description="its password; better in a file")
    password_file: File | None = Field(None, description="file that holds the password")
    ca_file: File | None = Field(None, description="authorities in PEM that check its certificate")
    allow_link_local: bool = Field(False, description="permit link-local and metadata addresses")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "password", "password_file", required=False)
        has_password = self.password is not None or self.password_file is not None
        if has_password != (self.user is not None):
            raise ValueError("give user and password_file together, or neither")
        if has_password and self.tls == "none":
            raise ValueError("a password needs tls: starttls or tls")
        return self

    @property
    def relay_port(self) -> int:
        """The port, given or usual."""
        return self.port or _PORTS[self.tls]
