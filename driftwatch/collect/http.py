"""GETs of many servers at once; a failure is a reason, not an exception."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http.client import responses
from queue import Empty, SimpleQueue
from typing import NamedTuple
from urllib.parse import urlsplit

from driftwatch.clock import Clock, SystemClock
from driftwatch.collect.http_session import Answer, Bounds, EndableSession, NoAnswer
from driftwatch.errors import UsageError

_GRACE_SECONDS = 1.0  # for a GET to come back that was ended
_POLL_SECONDS = 0.1  # how often stuck GETs are looked for
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Response:
    """What came back."""

    time: datetime  # when the GET began
    body: bytes | None  # the whole body of a 200, else None
    reason: str | None  # why there is no body, else None
    is_answered: bool = True  # with a status, whatever it was


def without_secrets(url: str) -> str:
    """An address as messages show it: no user, password or query.

    A password may hold any of ``/?#``: all before the last ``@`` is hidden.
    """
    return re.sub(r"(?s)//.*@", "//…@", url).partition("?")[0]


class Address(NamedTuple):
    """Where a server's metrics page is."""

    url: str  # of the page
    instance: str  # host:port

    def beside(self, path: str) -> str:
        """Address of another page of the same server, e.g. ``/version``."""
        parts = urlsplit(self.url)
        base = parts.path.removesuffix("/metrics").rstrip("/")
        return parts._replace(path=f"{base}{path}", query="").geturl()


def address_of(url: str, form: str = "host:port or http://host:port/metrics") -> Address:
    """An address as a person writes it: ``host:port`` means ``http://host:port/metrics``.

    ``form``: what to give instead.
    Raises UsageError: not an http or https address; the text holds no password.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        why = f": {error}" if "@" not in url else ""  # it may quote a part of the password
        raise UsageError(f"{without_secrets(url)!r} is not an address{why}") from None
    if parts.scheme not in _PORTS or not host:
        raise UsageError(
            f"{without_secrets(url)!r} is not an http or https address",
            help_text=f"give {form}",
        )
    path = "/metrics" if parts.path in ("", "/") else parts.path
    host = f"[{host}]" if ":" in host else host
    page = parts._replace(path=path, fragment="").geturl()
    return Address(page, f"{host}:{port or _PORTS[parts.scheme]}")


class _Server:
    """One server and the connection to it. One GET at a time."""

    def __init__(self, address: Address, bounds: Bounds, verify: bool | str) -> None:
        self.address = address
        self.last_get: Future[Response] | None = None
        self._bounds = bounds
        self._began: float | None = None  # the GET that is under way, monotonic
        self._session = EndableSession()
        self._session.verify = verify
        self._session.headers["Accept"] = "text/plain"
        # vLLM's server closes idle connections after 5 s, before the next scrape
        self._session.headers["Connection"] = "close"

    def get(self, url: str, clock: Clock) -> Response:
        """GET an address of this server."""
        asked_at = clock.now()
        self._began = time.monotonic()
        try:
            answer = self._session.exchange("GET", url, self._bounds)
        except NoAnswer as error:
            return Response(asked_at, None, str(error), is_answered=False)
        finally:
            self._began = None
        reason = _refusal(answer)
        return Response(asked_at, answer.body if reason is None else None, reason)

    @property
    def is_stuck(self) -> bool:
        """The GET that is under way did not end at its time: a name look-up cannot be ended."""
        began, most = self._began, self._bounds.total_seconds + _GRACE_SECONDS
        return began is not None and time.monotonic() - began > most

    def close(self) -> None:
        """End the GET that is under way, and give back the connection."""
        self._session.abort()
        self._session.close()


def _refusal(answer: Answer) -> str | None:
    """Why an answer's body is no page, None where it may be."""
    if 300 <= answer.status < 400:
        to = answer.headers.get("Location", "nowhere")[:200]
        return f"answers {answer.status}, a redirect to {to}, which is not followed"
    if answer.status != 200:
        return f"answers {answer.status} {responses.get(answer.status, '')}".rstrip()
    kind = answer.headers.get("Content-Type", "")
    return f"answers HTML ({kind[:80]}), not metrics" if "html" in kind.lower() else None


class PageFetcher:
    """Fetches from many servers at once, one GET per server; an answer or a reason for every one.

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
        self._servers: dict[str, _Server] = {}
        for url, name in urls:
            address = address_of(url)
            instance = name or address.instance
            if instance in self._servers:
                raise UsageError(
                    f"{without_secrets(url)!r}: there is already an address with the instance "
                    f"name {instance!r}",
                    help_text="give each address once; where two are meant, give one of them a "
                    "label instance",
                )
            trusted = (verify or {}).get(url, True)
            self._servers[instance] = _Server(address, self._bounds, trusted)
        if not self._servers:
            raise UsageError("no address of a metrics page was given")
        workers = max(1, min(workers, len(self._servers)))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="driftwatch-scrape")

    def close(self) -> None:
        """End what is under way and give back the connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for server in self._servers.values():
            server.close()

    @property
    def addresses(self) -> dict[str, Address]:
        """Instance → where its metrics page is."""
        return {instance: server.address for instance, server in self._servers.items()}

    def answers(self, urls: Mapping[str, str]) -> Iterator[tuple[str, Response]]:
        """GET an address of each instance, at most ``workers`` at once; answers as they come."""
        under_way: dict[Future[Response], str] = {}
        done: SimpleQueue[Future[Response]] = SimpleQueue()
        for instance, url in urls.items():
            server = self._servers[instance]
            if server.last_get is not None and not server.last_get.done():
                yield instance, self._no_answer("the GET before this one has not ended yet")
                continue
            server.last_get = self._pool.submit(server.get, url, self._clock)
            under_way[server.last_get] = instance
            server.last_get.add_done_callback(done.put)
        while under_way:
            with suppress(Empty):
                future = done.get(timeout=_POLL_SECONDS)
                if future in under_way:  # one that was given up may still come back
                    yield under_way.pop(future), future.result()
                continue
            for future in [one for one, name in under_way.items() if self._servers[name].is_stuck]:
                late = f"no answer within {self._bounds.total_seconds:g} s, not even an address"
                yield under_way.pop(future), self._no_answer(late)

    def _no_answer(self, reason: str) -> Response:
        return Response(self._clock.now(), None, reason, is_answered=False)


def what_to_check(url: str) -> str:
    """Where a Prometheus-compatible API does not answer."""
    query = f"{without_secrets(url).rstrip('/')}/api/v1/query?query=up"
    return (
        f"does it answer from this machine: curl {shlex.quote(query)}? The address of a Prometheus "
        "is the one that /api/v1 is under, with its port"
    )
