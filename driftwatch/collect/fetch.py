"""GET of one address with every bound a scrape needs; a failure is a reason, not an exception.

A read time-out alone does not end a server that drips a byte at a time, so whoever waits for the
answer ends it from outside with :meth:`Endpoint.abort` when its deadline has passed.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http.client import IncompleteRead, RemoteDisconnected, responses
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError, ReadTimeoutError

from driftwatch.clock import Clock
from driftwatch.collect.endable import EndableAdapter
from driftwatch.collect.page_text import MAX_PAGE_BYTES
from driftwatch.errors import UsageError

_CHUNK_BYTES = 64 * 1024
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one GET may take."""

    connect_seconds: float = 2.0  # until the connection stands (per address of the host)
    read_seconds: float = 5.0  # between two pieces of the answer
    # for all of it; the waiter enforces it with :meth:`Endpoint.abort`.
    total_seconds: float = 10.0
    body_bytes: int = MAX_PAGE_BYTES  # largest answer that is read


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    time: datetime  # when it was asked
    status: int | None  # HTTP status, None where there was none
    body: bytes | None  # the whole body of a 200, else None
    reason: str | None  # why there is no body, else None


def without_secrets(url: str) -> str:
    """An address as messages show it: no user, password or query."""
    return re.sub(r"//[^/?#]*@", "//…@", url.partition("?")[0])


class Endpoint:
    """One server: its address and the connection to it. One GET at a time.

    Args:
        url: address of its metrics page; ``host:port`` means ``http://host:port/metrics``.

    Raises:
        UsageError: not an http or https address.
    """

    def __init__(self, url: str, bounds: Bounds) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"{without_secrets(url)!r} is not an address: {error}") from None
        if parts.scheme not in _PORTS or not host:
            raise UsageError(
                f"{without_secrets(url)!r} is not an http or https address",
                help_text="give host:port or http://host:port/metrics",
            )
        path = "/metrics" if parts.path in ("", "/") else parts.path
        self.url = parts._replace(path=path, fragment="").geturl()
        host = f"[{host}]" if ":" in host else host
        self.instance = f"{host}:{port or _PORTS[parts.scheme]}"
        self.bounds = bounds
        self.started: float | None = None
        self._aborted = False
        self._socket: socket.socket | None = None
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers = requests.structures.CaseInsensitiveDict(
            {
                "User-Agent": "driftwatch",
                "Accept": "text/plain",
                "Accept-Encoding": "identity",
                # vLLM's server closes idle connections after 5 s, before the next scrape
                "Connection": "close",
            }
        )
        adapter = EndableAdapter(self._keep)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)

    def beside(self, path: str) -> str:
        """Address of another page of the same server, e.g. ``/version``."""
        parts = urlsplit(self.url)
        base = parts.path.removesuffix("/metrics").rstrip("/")
        path, _, query = path.partition("?")
        return parts._replace(path=f"{base}{path}", query=query).geturl()

    def get(self, url: str, clock: Clock) -> Answer:
        """GET ``url``, an address of this server."""
        self._aborted = False
        self.started = time.monotonic()
        asked = clock.now()
        status: int | None = None
        body: bytes | None = None
        reason: str | None = None
        try:
            with self._session.get(
                url,
                stream=True,
                allow_redirects=False,
                timeout=(self.bounds.connect_seconds, self.bounds.read_seconds),
            ) as response:
                status = response.status_code
                reason = _refusal(response, self.bounds.body_bytes)
                if reason is None:
                    body, reason = self._body(response)
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            body, reason = None, _why(error, self.bounds)
        finally:
            self.started = None
            self._keep(None)
        if self._aborted:
            # an answer without a length looks complete when its connection is shut
            body, reason = None, f"no complete answer within {self.bounds.total_seconds:g} s"
        return Answer(asked, status, body, reason)

    def abort(self) -> None:
        """End the GET that is under way; called from another thread."""
        self._aborted = True
        held = self._socket
        if held is not None:
            with suppress(OSError):  # it ended by itself
                held.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give back the connection."""
        self._session.close()

    def _body(self, response: requests.Response) -> tuple[bytes | None, str | None]:
        pieces: list[bytes] = []
        size = 0
        for piece in response.iter_content(_CHUNK_BYTES):
            size += len(piece)
            if size > self.bounds.body_bytes:
                return None, f"page refused: larger than {self.bounds.body_bytes} bytes"
            pieces.append(piece)
        return b"".join(pieces), None

    def _keep(self, held: socket.socket | None) -> None:
        """Hold a duplicate of the socket: TLS takes the first one away during its handshake."""
        before, self._socket = self._socket, held
        if before is not None:
            before.close()
        if held is not None and self._aborted:
            self.abort()


def _refusal(response: requests.Response, body_bytes: int) -> str | None:
    """Why a response's body is not worth reading, None where it is."""
    status = response.status_code
    if 300 <= status < 400:
        to = response.headers.get("Location", "nowhere")[:200]
        return f"answers {status}, a redirect to {to}, which is not followed"
    if status != 200:
        return f"answers {status} {responses.get(status, '')}".rstrip()
    kind = response.headers.get("Content-Type", "")
    if "html" in kind.lower():
        return f"HTML, not a metrics page (Content-Type {kind[:80]})"
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        return f"answers with Content-Encoding {encoding[:40]}, which was not asked for"
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and len(length) < 20 and int(length) > body_bytes:
        return f"page refused: {length} bytes, more than {body_bytes}"
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and everything it wraps, outermost first."""
    todo, seen = [error], set()
    while todo:
        here = todo.pop(0)
        if id(here) in seen:
            continue
        seen.add(id(here))
        yield here
        inner = (*here.args, getattr(here, "reason", None), here.__cause__, here.__context__)
        todo += [e for e in inner if isinstance(e, BaseException)]


def _why(error: BaseException, bounds: Bounds) -> str:
    """The failure in words, without the library's wrapping."""
    chain = list(_chain(error))
    for e in chain:
        if isinstance(e, requests.ConnectTimeout):
            return f"no connection within {bounds.connect_seconds:g} s"
        if isinstance(e, requests.ReadTimeout | ReadTimeoutError):
            return f"no answer for {bounds.read_seconds:g} s"
        if isinstance(e, IncompleteRead):
            return f"answer cut off after {_got(e)} bytes"
        if isinstance(e, RemoteDisconnected):
            return "connection closed without an answer"
        if isinstance(e, ssl.SSLError):
            return f"TLS: {e.reason or e}"
    for e in chain:
        if isinstance(e, OSError) and e.strerror:
            return e.strerror[0].lower() + e.strerror[1:]
    innermost = chain[-1]
    said = " ".join(str(innermost).split())
    return f"{type(innermost).__name__}: {said[:160]}"


def _got(error: IncompleteRead) -> int:
    partial: object = error.partial
    return partial if isinstance(partial, int) else len(error.partial)
