"""GETs with every bound a scrape needs, many at once; a failure is a reason, not an exception."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http.client import responses
from queue import Empty, SimpleQueue
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError

from driftwatch.clock import Clock, SystemClock
from driftwatch.collect.http_session import EndableSession, why_failed
from driftwatch.collect.pages.text import MAX_PAGE_BYTES
from driftwatch.errors import UsageError

_CHUNK_BYTES = 64 * 1024
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one GET may take."""

    connect_seconds: float = 2.0  # until the connection stands (per address of the host)
    read_seconds: float = 10.0  # between two pieces of the answer
    # for all of it; the waiter enforces it with :meth:`Endpoint.abort`.
    total_seconds: float = 12.0
    body_bytes: int = MAX_PAGE_BYTES  # largest answer that is read


@dataclass(frozen=True, slots=True)
class Response:
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

    ``url``: address of its metrics page; ``host:port`` means ``http://host:port/metrics``;
    ``verify``: check TLS certificates: True, or a file of authorities.
    Raises UsageError: not an http or https address.
    """

    def __init__(self, url: str, bounds: Bounds, verify: bool | str = True) -> None:
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
        self._session = EndableSession()
        self._session.verify = verify
        self._session.headers["Accept"] = "text/plain"
        # vLLM's server closes idle connections after 5 s, before the next scrape
        self._session.headers["Connection"] = "close"

    def beside(self, path: str) -> str:
        """Address of another page of the same server, e.g. ``/version``."""
        parts = urlsplit(self.url)
        base = parts.path.removesuffix("/metrics").rstrip("/")
        path, _, query = path.partition("?")
        return parts._replace(path=f"{base}{path}", query=query).geturl()

    def get(self, url: str, clock: Clock) -> Response:
        """GET ``url``, an address of this server."""
        self._session.aborted = False
        self.started = time.monotonic()
        asked_at = clock.now()
        bounds, status = self.bounds, None
        body: bytes | None = None
        reason: str | None = None
        try:
            with self._session.get(
                url,
                stream=True,
                allow_redirects=False,
                timeout=(bounds.connect_seconds, bounds.read_seconds),
            ) as response:
                status = response.status_code
                reason = _refusal(response, bounds.body_bytes)
                if reason is None:
                    body, reason = self._body(response)
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            no_answer = f"no answer for {bounds.read_seconds:g} s"
            body, reason = None, why_failed(error, bounds.connect_seconds, no_answer)
        finally:
            self.started = None
            self._session.let_go()
        if self._session.aborted:
            # an answer without a length looks complete when its connection is shut
            body, reason = None, f"no complete answer within {bounds.total_seconds:g} s"
        return Response(asked_at, status, body, reason)

    def abort(self) -> None:
        """End the GET that is under way; called from another thread."""
        self._session.abort()

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
        return f"answers HTML ({kind[:80]}), not metrics"
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        return f"answers with Content-Encoding {encoding[:40]}, which was not asked for"
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and len(length) < 20 and int(length) > body_bytes:
        return f"page refused: {length} bytes, more than {body_bytes}"
    return None


_POLL_SECONDS = 0.1  # how often deadlines are looked at
_GRACE_SECONDS = 1.0  # for an ended GET to come back; a name look-up cannot be ended


class Gets:
    """GETs of many servers at once, at most one per server; an answer or a reason for every one.

    ``urls``: addresses, each with the name of its instance, or None for ``host:port``; ``clock``:
    gives each GET its time, taken when it starts; ``workers``: GETs under way at once; ``verify``:
    address → file of authorities, where it is not the system's.
    Raises UsageError: no address, not an address, or two with the same instance name.
    """

    def __init__(
        self,
        urls: Iterable[tuple[str, str | None]],
        clock: Clock | None = None,
        bounds: Bounds | None = None,
        workers: int = 32,
        verify: Mapping[str, str] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._bounds = bounds or Bounds()
        self._under_way: dict[str, Future[Response]] = {}
        self._endpoints: dict[str, Endpoint] = {}
        for url, name in urls:
            endpoint = Endpoint(url, self._bounds, (verify or {}).get(url, True))
            instance = name or endpoint.instance
            if instance in self._endpoints:
                raise UsageError(
                    f"{without_secrets(url)!r}: there is already an address with the instance "
                    f"name {instance!r}",
                    help_text="give each address once; where two are meant, give one of them a "
                    "label instance",
                )
            self._endpoints[instance] = endpoint
        if not self._endpoints:
            raise UsageError("no address of a metrics page was given")
        self._pool = ThreadPoolExecutor(
            max_workers=max(1, min(workers, len(self._endpoints))),
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

    @property
    def addresses(self) -> dict[str, str]:
        """Instance → address of its metrics page."""
        return {instance: endpoint.url for instance, endpoint in self._endpoints.items()}

    def beside(self, path: str) -> dict[str, str]:
        """Instance → address of another page of the same server, e.g. ``/version``."""
        return {instance: endpoint.beside(path) for instance, endpoint in self._endpoints.items()}

    def answers(self, addresses: Mapping[str, str]) -> Iterator[tuple[str, Response]]:
        """GET each instance's address, at most ``workers`` at once; answers as they come."""
        done: SimpleQueue[str] = SimpleQueue()
        waiting: set[str] = set()
        for instance, url in addresses.items():
            before = self._under_way.get(instance)
            if before is not None and not before.done():
                yield instance, self._no_answer("the GET before this one has not ended yet")
                continue
            future = self._pool.submit(self._endpoints[instance].get, url, self._clock)
            self._under_way[instance] = future
            waiting.add(instance)
            future.add_done_callback(partial(_report, done, instance))
        looked_at = time.monotonic()
        while waiting:
            with suppress(Empty):
                instance = done.get(timeout=_POLL_SECONDS)
                if instance in waiting:  # one that was given up may still come back
                    waiting.discard(instance)
                    yield instance, self._under_way[instance].result()
            if time.monotonic() < looked_at + _POLL_SECONDS:
                continue
            looked_at = time.monotonic()
            for instance in self._stuck(waiting):
                waiting.discard(instance)
                late = f"no answer within {self._bounds.total_seconds:g} s, not even an address"
                yield instance, self._no_answer(late)

    def _stuck(self, waiting: set[str]) -> list[str]:
        """End the GETs whose time is over; those that do not even end."""
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

    def _no_answer(self, reason: str) -> Response:
        return Response(self._clock.now(), None, None, reason)


def _report(done: SimpleQueue[str], instance: str, _: Future[Response]) -> None:
    done.put(instance)
