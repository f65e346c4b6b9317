"""Settings of the service: which rules are read, the web, the weekly report, a heartbeat."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    model_validator,
)  # fmt: skip

from driftwatch.settings.values import (
    File,
    Names,
    SecretUrl,
    WithSecrets,
    http_url,
    one_of,
)  # fmt: skip
from driftwatch.yaml_models import Part
from driftwatch.yaml_positions import Entries, Items


def _runbook(text: str) -> str:
    http_url(text.replace("{alert}", "alert"))
    return text


RunbookUrl = Annotated[str, AfterValidator(_runbook)]


class RuleSettings(Part):
    """``rules:`` of the configuration.

    Overrides are read one by one beside the rules that they name (``rulebook.overrides``).
    """

    files: tuple[File, ...] = Field(
        (), description="rule files, folders or globs; without any the shipped ones"
    )
    runbook: RunbookUrl | None = Field(
        None, description="address of the runbook of rules that have none; {alert} is the alert"
    )
    overrides: tuple[dict[str, Any], ...] = Field(
        (), description="what rules are in some pools, or in all of them"
    )


def with_rule_files(root: Entries) -> None:
    """Read a list of rules as their ``files``."""
    place, node = root.entries.get("rules", (None, None))
    if place is not None and isinstance(node, Items):
        root.entries["rules"] = place, Entries(node.place, {"files": (place, node)})


class ReportSettings(Part):
    """Receivers of the weekly report, made on Mondays at 07:00 UTC."""

    receivers: Names = Field(
        (), description="names of the receivers that get it; without any all of them"
    )


class HeartbeatSettings(WithSecrets):
    """The URL that gets a heartbeat every minute."""

    url: SecretUrl | None = Field(None, description="URL that is pinged; may hold a token")
    url_file: File | None = Field(None, description="file that holds the URL")

    @model_validator(mode="after")
    def _check(self) -> Self:
        one_of(self, "url", "url_file")
        return self


def checked_listen(text: str) -> str:
    """A host and a port; an IPv6 address in brackets."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError("an address to listen on is host:port, such as 127.0.0.1:9095")
    return text


def listen_address(listen: str) -> tuple[str, int]:
    """Host and port; brackets of an IPv6 address are taken off."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def _network(value: object) -> IPv4Network | IPv6Network:
    try:
        return ip_network(str(value))
    except ValueError:
        raise ValueError("an address or network, such as 10.0.0.7 or 10.0.0.0/24") from None


Listen = Annotated[str, AfterValidator(checked_listen)]
Network = Annotated[
    IPv4Network | IPv6Network, BeforeValidator(_network), WithJsonSchema({"type": "string"})
]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")]


class ProxySettings(Part):
    """A proxy that signs people in and sends their names."""

    addresses: tuple[Network, ...] = Field(
        min_length=1,
        description="addresses of the proxy; the header of any other client is ignored",
    )
    header: HeaderName = Field("X-Forwarded-User", description="the header with the person's name")


class WebSettings(Part):
    """The pages of ``driftwatch web``."""

    listen: Listen = Field("127.0.0.1:9096", description="address of the pages")
    token_file: File | None = Field(
        None, description="file with the token of those who may act; without it nobody signs in"
    )
    proxy: ProxySettings | None = Field(
        None, description="a proxy that names the person in a header"
    )
