"""Who looks at a page, and whether a form is theirs. Time and chance are arguments."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import structlog

from driftwatch.errors import ConfigError, Problem
from driftwatch.settings.values import read_of
from driftwatch.settings.web import ProxySettings
from driftwatch.web.client_address import client_address, is_within

SHORTEST_TOKEN, LONGEST_NAME = 16, 100
SIGNED_IN_FOR = FORM_FOR = timedelta(hours=12)
# a form may be a little younger than the clock of this process
_CLOCK_STEP = timedelta(minutes=1)
# of a program that gives no name
PROGRAM = "a program with the token"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who may act."""

    name: str
    # by a header of the request, by the proxy's, or signed in here; of the first no form is needed
    by: Literal["token", "proxy", "session"]


@dataclass(frozen=True, slots=True)
class FormToken:
    """What makes a form one that this web drew for this person."""

    at: datetime  # when it was drawn
    salt: str  # another for each page that is drawn


class People:
    """Tokens, sessions and forms of one web.

    ``secret``: what forms and sessions are signed with where there is no token.
    """

    def __init__(self, token_file: Path | None, proxy: ProxySettings | None, secret: bytes) -> None:
        self._token_file, self._proxy, self._secret = token_file, proxy, secret

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

    def by_header(self, authorization: str, name: str | None) -> Person | None:
        """Who sent ``Authorization: Bearer TOKEN``; ``name``: whom it says it acts for."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not self.is_token(token.strip()):
            return None
        return Person(_name(name) or PROGRAM, "token")

    def by_proxy(self, address: str, header: str | None) -> Person | None:
        """Whom the proxy names; None unless the request comes from it."""
        if self._proxy is None or header is None or not (name := _name(header)):
            return None
        return Person(name, "proxy") if is_within(address, self._proxy.addresses) else None

    def address_of(self, peer: str, forwarded_for: Iterable[str]) -> str:
        """From where a request comes, which answers for its wrong tokens.

        ``peer``: where the connection comes from; ``forwarded_for``: every X-Forwarded-For; only
        the configured proxy's is believed.
        """
        trusted = () if self._proxy is None else self._proxy.addresses
        return client_address(peer, forwarded_for, trusted)

    @property
    def proxy_header(self) -> str | None:
        """The header in which the proxy names people."""
        return None if self._proxy is None else self._proxy.header

    def is_token(self, text: str) -> bool:
        """Whether this is the token, as its file has it now."""
        token = self._token()
        if token is None:
            structlog.get_logger().warning("no token to compare with", file=str(self._token_file))
            return False
        return hmac.compare_digest(text.encode(), token.encode())

    def session(self, name: str, at: datetime) -> str:
        """The cookie of somebody who gave the token; a new token ends it."""
        text = f"{_packed(name)}.{int(at.timestamp())}"
        return f"{text}.{self._signed('session', text)}"

    def by_session(self, cookie: str, now: datetime) -> Person | None:
        """Whose session this is; None: nobody's, or it is over."""
        text, _, signature = cookie.rpartition(".")
        packed, _, began = text.partition(".")
        if not self._is_signed("session", text, signature) or not began.isdigit():
            return None
        if not 0 <= _age(began, now).total_seconds() < SIGNED_IN_FOR.total_seconds():
            return None
        try:
            name = _name(base64.urlsafe_b64decode(packed.encode()).decode())
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return None
        return Person(name, "session") if name else None

    def form_token(self, browser: str, person: Person | None, form: FormToken) -> str:
        """The hidden field of a form; ``browser``: the nonce in that browser's cookie."""
        text = f"{int(form.at.timestamp())}.{form.salt}"
        return f"{text}.{self._signed('form', _bound(browser, person, text))}"

    def form_of(
        self, field: str, browser: str, person: Person | None, now: datetime
    ) -> FormToken | None:
        """The form that a hidden field stands for; None: stale, or not drawn for this person."""
        text, _, signature = field.rpartition(".")
        began, _, salt = text.partition(".")
        if not browser or not salt or not began.isdigit():
            return None
        if not self._is_signed("form", _bound(browser, person, text), signature):
            return None
        if not -_CLOCK_STEP <= _age(began, now) < FORM_FOR:
            return None
        return FormToken(datetime.fromtimestamp(int(began), UTC), salt)

    def _token(self) -> str | None:
        """The token; None: there is none that can be used now, so it lets nobody in."""
        try:
            # at each use: a token that is replaced holds at once
            token = read_of(None, self._token_file)
        except ConfigError:
            # being replaced, perhaps: who only looks needs none
            return None
        return None if token is None or len(token) < SHORTEST_TOKEN else token

    def _signed(self, purpose: str, text: str) -> str:
        token = self._token()
        key = self._secret if token is None else token.encode()
        return hmac.new(key, f"{purpose}\n{text}".encode(), hashlib.sha256).hexdigest()

    def _is_signed(self, purpose: str, text: str, signature: str) -> bool:
        return hmac.compare_digest(self._signed(purpose, text).encode(), signature.encode())


def _bound(browser: str, person: Person | None, text: str) -> str:
    whose = "" if person is None else _packed(person.name)
    return f"{browser}\n{whose}\n{text}"


def _age(seconds: str, now: datetime) -> timedelta:
    return now - datetime.fromtimestamp(min(int(seconds[:12]), 2**33), UTC)


def _packed(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _name(text: str | None) -> str:
    """A name as it is kept: bounded, printable; empty where it is none."""
    name = (text or "").strip()
    return name if len(name) <= LONGEST_NAME and name.isprintable() else ""
