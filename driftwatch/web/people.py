"""Who may act: by the token, named by the proxy, or signed in. Time is an argument."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Literal

import structlog

from driftwatch.errors import ConfigError, Problem
from driftwatch.settings.values import read_of
from driftwatch.settings.web import ProxySettings

SHORTEST_TOKEN, LONGEST_NAME = 16, 100
SIGNED_IN_FOR = timedelta(hours=12)
# of a program that gives no name
PROGRAM = "a program with the token"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who may act."""

    name: str
    # by a header of the request, by the proxy's, or signed in here
    by: Literal["token", "proxy", "session"]


class People:
    """The token, the proxy and the sessions of one web."""

    def __init__(self, token_file: Path | None, proxy: ProxySettings | None) -> None:
        self._token_file, self._proxy = token_file, proxy

    @property
    def can_sign_in(self) -> bool:
        """Whether there is a token to sign in with."""
        return self._token_file is not None

    @property
    def may_act(self) -> bool:
        """Whether anybody may do anything here."""
        return self._token_file is not None or self._proxy is not None

    @property
    def proxy_header(self) -> str | None:
        """The header in which the proxy names people."""
        return None if self._proxy is None else self._proxy.header

    def require_token(self) -> None:
        """Check that the token can be read and is long enough.

        Raises ConfigError: it cannot, or is not.
        """
        token = read_of(None, self._token_file)
        if token is not None and len(token) < SHORTEST_TOKEN:
            message = f"the token in this file is shorter than {SHORTEST_TOKEN} characters"
            help_text = "openssl rand -hex 32 writes one"
            path = str(self._token_file)
            raise ConfigError((Problem(path, None, None, "value", message, help_text),))

    def by_header(self, authorization: str, name: str | None) -> Person | None:
        """Who sent ``Authorization: Bearer TOKEN``; ``name``: whom it says it acts for."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not self.is_token(token.strip()):
            return None
        return Person(_name(name) or PROGRAM, "token")

    def by_proxy(self, address: str, header: str | None) -> Person | None:
        """Whom the proxy names; None unless the request comes from it."""
        name = _name(header)
        if self._proxy is None or not name or not _is_within(address, self._proxy.addresses):
            return None
        return Person(name, "proxy")

    def is_token(self, text: str) -> bool:
        """Whether this is the token, as its file has it now."""
        token = self._token()
        if token is None:
            structlog.get_logger().warning("no token to compare with", file=str(self._token_file))
            return False
        return hmac.compare_digest(text.encode(), token.encode())

    def session(self, name: str, at: datetime) -> str:
        """The cookie of somebody who gave the token; another token ends it."""
        packed = base64.urlsafe_b64encode(name.encode()).decode()
        text = f"{packed}.{int(at.timestamp())}"
        return f"{text}.{self._signed(text)}"

    def by_session(self, cookie: str, now: datetime) -> Person | None:
        """Whose session this is; None: nobody's, or it is over."""
        text, _, signature = cookie.rpartition(".")
        packed, _, began = text.partition(".")
        signed = self._signed(text)
        if signed is None or not hmac.compare_digest(signed.encode(), signature.encode()):
            return None
        age = now - datetime.fromtimestamp(int(began), UTC)
        if not timedelta(0) <= age < SIGNED_IN_FOR:
            return None
        try:
            name = _name(base64.urlsafe_b64decode(packed.encode()).decode())
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return None
        return Person(name, "session") if name else None

    def _token(self) -> str | None:
        """The token; None: there is none that can be used now, so it lets nobody in."""
        try:
            # at each use: a token that is replaced holds at once
            token = read_of(None, self._token_file)
        except ConfigError:
            # being replaced, perhaps: who only looks needs none
            return None
        return None if token is None or len(token) < SHORTEST_TOKEN else token

    def _signed(self, text: str) -> str | None:
        token = self._token()
        if token is None:
            return None
        return hmac.new(token.encode(), f"session\n{text}".encode(), hashlib.sha256).hexdigest()


def _is_within(address: str, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    """Whether an address lies in one of the networks; IPv4 written as IPv6 is IPv4."""
    try:
        one = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    ways = {one, getattr(one, "ipv4_mapped", None) or one}
    return any(way in network for way in ways for network in networks)


def _name(text: str | None) -> str:
    """A name as it is kept: bounded, printable; empty where it is none."""
    name = (text or "").strip()
    return name if len(name) <= LONGEST_NAME and name.isprintable() else ""
