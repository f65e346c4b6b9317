"""Settings of the web: where it listens, by which names, who may act."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from driftwatch.settings.values import File
from driftwatch.yaml_models import Part


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


def _host(text: str) -> str:
    if not text or any(one in text for one in "/@ ") or not text.isascii():
        raise ValueError("a host's name alone, such as driftwatch.example.com")
    return text.lower()


Listen = Annotated[str, AfterValidator(checked_listen)]
Network = Annotated[
    IPv4Network | IPv6Network, BeforeValidator(_network), WithJsonSchema({"type": "string"})
]
HostName = Annotated[str, AfterValidator(_host)]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")]


class ProxySettings(Part):
    """A proxy that has signed people in, and names them."""

    addresses: tuple[Network, ...] = Field(
        min_length=1, description="from which its requests come; another's header is ignored"
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
