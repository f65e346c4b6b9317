"""Who may act: a person that the proxy names or that signed in. And the forms that people send.

Starlette's SessionMiddleware keeps a session in a signed cookie. Time is an argument.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request

from driftwatch.errors import ConfigError, Problem
from driftwatch.settings.file import ProxySettings
from driftwatch.settings.values import read_of

SHORTEST_TOKEN, LONGEST_NAME = 16, 100
SIGNED_IN_FOR = timedelta(hours=12)
_MOST_FIELDS, _MOST_BODY_BYTES = 50, 65_536
_FORM_TYPE = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Person:
    """A person who may act."""

    name: str
    by: Literal["proxy", "session"]  # named by the proxy, or signed in here


class People:
    """The token and the proxy of one web."""

    def __init__(self, token_file: Path | None, proxy: ProxySettings | None) -> None:
        self._token_file, self._proxy = token_file, proxy

    @property
    def can_sign_in(self) -> bool:
        """Whether there is a token to sign in with."""
        return self._token_file is not None

    @property
    def secret(self) -> str:
        """The key that signs cookies: with a token, the same in every process."""
        return self._key("cookie") or secrets.token_hex()

    def require_token(self) -> str | None:
        """The token; None: none is configured.

        Raises ConfigError: its file cannot be read, or the token is too short.
        """
        token = read_of(None, self._token_file)
        if token is not None and len(token) < SHORTEST_TOKEN:
            message = f"the token in this file is shorter than {SHORTEST_TOKEN} characters"
            help_text = "openssl rand -hex 32 writes one"
            path = str(self._token_file)
            raise ConfigError((Problem(path, None, None, "value", message, help_text),))
        return token

    def person(self, request: Request, now: datetime) -> Person | None:
        """The person who sent a request; None: the sender may only look."""
        proxy = self._proxy
        if proxy is not None and request.client is not None:
            texts = request.headers.getlist(proxy.header)
            # if there are two, one may be the client's own
            if len(texts) == 1 and _is_of(proxy, request.client.host):
                name = person_name(texts[0].encode("latin-1").decode(errors="replace"))
                if name:
                    return Person(name, "proxy")
        session, key = request.session, self._key("session")
        if key is None or not hmac.compare_digest(
            str(session.get("key", "")).encode(), key.encode()
        ):
            return None
        age = now - datetime.fromtimestamp(session["at"], UTC)
        is_valid = timedelta(0) <= age < SIGNED_IN_FOR
        return Person(session["name"], "session") if is_valid else None

    def sign_in(self, request: Request, name: str, token: str, now: datetime) -> bool:
        """Begin a session if the token is right; False: it is wrong."""
        own = self._token()
        if own is None:
            structlog.get_logger().warning("no token to compare with", file=str(self._token_file))
        if own is None or not hmac.compare_digest(token.encode(), own.encode()):
            return False
        # another token ends the session
        request.session.update(name=name, at=int(now.timestamp()), key=self._key("session"))
        return True

    def _token(self) -> str | None:
        """The token of this moment; None: its file cannot be used, so nobody signs in."""
        try:
            return self.require_token()
        except ConfigError:
            return None  # perhaps somebody replaces it; readers need no token

    def _key(self, purpose: str) -> str | None:
        token = self._token()
        if token is None:
            return None
        return hmac.new(token.encode(), purpose.encode(), hashlib.sha256).hexdigest()


def _is_of(proxy: ProxySettings, address: str) -> bool:
    """Whether an address is the proxy's; IPv4 written as IPv6 is IPv4."""
    try:
        one = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    ways = {one, getattr(one, "ipv4_mapped", None) or one}
    return any(way in network for way in ways for network in proxy.addresses)


def person_name(text: str) -> str:
    """The name without spaces around it; empty where it is too long or not printable."""
    name = text.strip()
    return name if len(name) <= LONGEST_NAME and name.isprintable() else ""


async def posted(request: Request, hosts: frozenset[str]) -> list[tuple[str, str]]:
    """The fields of a form that one of the web's own pages sent.

    Every browser says which site sent a form. Raises HTTPException: 403 another site; 413 too
    long; 415, 400 no form.
    """
    is_same = request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    if not is_same or _host(request.headers.get("origin", "")) not in hosts:
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


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


def own_path(text: str) -> str:
    """The path if it belongs to this web, else the first page: a form cannot lead to another site.

    >>> own_path("/incidents/a?page=2"), own_path("//evil.example"), own_path("https://evil")
    ('/incidents/a?page=2', '/', '/')
    """
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_own and "\\" not in text else "/"
