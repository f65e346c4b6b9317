"""GETs with every bound a scrape needs, many at once; a failure is a reason, not an exception."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import IncompleteRead, RemoteDisconnected, responses
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, ReadTimeoutError

from driftwatch.clock import Clock
from driftwatch.collect.pages.series import MAX_PAGE_BYTES
from driftwatch.errors import UsageError


class EndableAdapter(HTTPAdapter):
    """One connection at a time, whose socket is handed out as soon as it stands; no retries.

    Args:
        held: takes a duplicate of each new socket (TLS takes the first one away during its
            handshake); shutting it down ends the exchange, whatever phase it is in.
    """

    def __init__(self, held: Callable[[socket.socket], None]) -> None:
        self._held = held
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make pools whose connections hand their socket out."""
        super().init_poolmanager(*args, **kwargs)
        held = self._held

        class Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                made = super()._new_conn()
                held(made.dup())
                return made

        class Secure(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                made = super()._new_conn()
                held(made.dup())
                return made

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}


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


_Came = SimpleQueue[tuple[str, Future[Answer]]]

_POLL_SECONDS = 0.1  # how often deadlines are looked at
_GRACE_SECONDS = 1.0  # for an ended GET to come back; a name look-up cannot be ended


class Gets:
    """GETs under way, at most one per server."""

    def __init__(
        self, endpoints: Mapping[str, Endpoint], clock: Clock, bounds: Bounds, workers: int
    ) -> None:
        self._endpoints = endpoints
        self._clock = clock
        self._bounds = bounds
        self._under_way: dict[str, Future[Answer]] = {}
        self._pool = ThreadPoolExecutor(
            max_workers=max(1, min(workers, len(endpoints))),
            thread_name_prefix="driftwatch-scrape",
        )

    def close(self) -> None:
        """End what is under way and give back the connections."""
        for endpoint in self._endpoints.values():
            if endpoint.started is not None:
                endpoint.abort()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for endpoint in self._endpoints.values():
            endpoint.close()

    def answers(self, addresses: Mapping[str, str]) -> Iterator[tuple[str, Answer]]:
        """GET each address, at most ``workers`` at once; answers as they come."""
        came: _Came = SimpleQueue()
        waiting: set[str] = set()
        for instance, url in addresses.items():
            before = self._under_way.get(instance)
            if before is not None and not before.done():
                yield instance, self._lost("the GET before this one has not ended yet")
                continue
            future = self._pool.submit(self._endpoints[instance].get, url, self._clock)
            self._under_way[instance] = future
            waiting.add(instance)
            future.add_done_callback(partial(_put, came, instance))
        looked = time.monotonic()
        while waiting:
            with suppress(Empty):
                instance, future = came.get(timeout=_POLL_SECONDS)
                # one that was given up may still come back
                if instance in waiting:
                    waiting.discard(instance)
                    yield instance, future.result()
            if time.monotonic() < looked + _POLL_SECONDS:
                continue
            looked = time.monotonic()
            for instance in self._overdue(waiting):
                waiting.discard(instance)
                yield (
                    instance,
                    self._lost(
                        f"no answer within {self._bounds.total_seconds:g} s, not even an address"
                    ),
                )

    def _overdue(self, waiting: set[str]) -> list[str]:
        """End the GETs whose time is over; those that do not even end are given back."""
        now = time.monotonic()
        stuck = []
        for instance in sorted(waiting):
            started = self._endpoints[instance].started
            if started is None or now < started + self._bounds.total_seconds:
                continue
            self._endpoints[instance].abort()
            if now > started + self._bounds.total_seconds + _GRACE_SECONDS:
                stuck.append(instance)
        return stuck

    def _lost(self, reason: str) -> Answer:
        return Answer(self._clock.now(), None, None, reason)


def _put(came: _Came, instance: str, future: Future[Answer]) -> None:
    came.put((instance, future))


_CONNECT_SECONDS, _READ_SECONDS = 2.0, 3.0
_AT_ONCE = 16


def clock_offset(url: str, clock: Clock, *, verify: bool | str = True) -> float | None:
    """Seconds that the server's clock is ahead of ours; None where it does not say.

    Whatever it answers, a refusal too, carries the time. It is told in whole seconds, so an
    offset below two seconds says nothing.

    Args:
        url: any address of the server, without credentials.
        verify: check TLS certificates: True, or a file of authorities.
    """
    with requests.Session() as session, suppress(requests.RequestException, ValueError):
        session.trust_env = False
        asked = clock.now()
        with session.head(
            url,
            allow_redirects=False,
            stream=True,
            verify=verify,
            timeout=(_CONNECT_SECONDS, _READ_SECONDS),
        ) as answer:
            told = parsedate_to_datetime(answer.headers.get("Date", ""))
        half = (clock.now() - asked) / 2
        if told.tzinfo is None:  # "-0000": a time of no stated zone is UTC here
            told = told.replace(tzinfo=UTC)
        # the header is cut to the second, half a second is lost in the mean
        return round((told - asked - half).total_seconds() + 0.5, 1)
    return None


def clock_offsets(urls: Mapping[str, str], clock: Clock) -> dict[str, float]:
    """Name → offset of each server that says one, several asked at once."""
    if not urls:
        return {}
    with ThreadPoolExecutor(min(_AT_ONCE, len(urls)), "driftwatch-clock") as pool:
        found = pool.map(lambda url: clock_offset(url, clock), urls.values())
        return {name: ahead for name, ahead in zip(urls, found, strict=True) if ahead is not None}
