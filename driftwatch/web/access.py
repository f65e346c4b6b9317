"""Who may act: whom the proxy names, or who signed in with the token; and the forms they send.

Time is an argument.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request

from driftwatch.errors import ConfigError, Problem
from driftwatch.settings.values import read_of
from driftwatch.settings.web import ProxySettings

SHORTEST_TOKEN, LONGEST_NAME = 16, 100
SIGNED_IN_FOR = timedelta(hours=12)
SESSION_COOKIE = "driftwatch_session"
_MOST_FIELDS, _MOST_BODY_BYTES = 50, 65_536
_FORM_TYPE = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who may act."""

    name: str
    by: Literal["proxy", "session"]  # named by the proxy, or signed in here


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

    def person(self, request: Request, now: datetime) -> Person | None:
        """Who sent a request; None: somebody who may look, and not act."""
        proxy = self._proxy
        if proxy is not None and request.client is not None:
            texts = request.headers.getlist(proxy.header)
            # of two headers one may be the client's own
            if len(texts) == 1 and _is_within(request.client.host, proxy.addresses):
                name = person_name(texts[0].encode("latin-1").decode(errors="replace"))
                if name:
                    return Person(name, "proxy")
        name = self._session_name(request.cookies.get(SESSION_COOKIE, ""), now)
        return Person(name, "session") if name else None

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

    def _session_name(self, cookie: str, now: datetime) -> str:
        """Whose session this is; empty: nobody's, or it is over."""
        text, _, signature = cookie.rpartition(".")
        packed, _, began = text.partition(".")
        signed = self._signed(text)
        if signed is None or not hmac.compare_digest(signed.encode(), signature.encode()):
            return ""
        age = now - datetime.fromtimestamp(int(began), UTC)
        if not timedelta(0) <= age < SIGNED_IN_FOR:
            return ""
        return person_name(base64.urlsafe_b64decode(packed).decode())

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


def person_name(text: str) -> str:
    """A name as it is kept: bounded, printable; empty where it is none."""
    name = text.strip()
    return name if len(name) <= LONGEST_NAME and name.isprintable() else ""


async def posted(request: Request, hosts: frozenset[str]) -> list[tuple[str, str]]:
    """The fields of a form that one of the web's own pages sent.

    Every browser says which site sent a form. Raises HTTPException: 403 another site; 413 too
    long; 415, 400 no form.
    """
    origin = request.headers.get("origin", "")
    is_same = request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    if not is_same or host_of(origin.partition("://")[2]) not in hosts:
        raise HTTPException(403, "Another site sent this form.")
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != _FORM_TYPE and (kind or request.headers.get("content-length", "0") != "0"):
        raise HTTPException(415, f"A form is sent as {_FORM_TYPE}.")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY_BYTES:
            raise HTTPException(413, f"A form has at most {_MOST_BODY_BYTES} bytes.")
    try:
        return parse_qsl(
            body.decode(),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=_MOST_FIELDS,
        )
    except (UnicodeDecodeError, ValueError):
        raise HTTPException(400, "The body is no form.") from None


def host_of(header: str) -> str:
    """The name in a Host or Origin header, without its port.

    >>> host_of("Ops.example.com:443"), host_of("[::1]:9096")
    ('ops.example.com', '::1')
    """
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def own_path(text: str) -> str:
    """The path where it is one of this web, else the first page: no way to another site.

    >>> own_path("/incidents/a?page=2"), own_path("//evil.example"), own_path("https://evil")
    ('/incidents/a?page=2', '/', '/')
    """
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_own and "\\" not in text else "/"
