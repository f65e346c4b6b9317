"""GETs with every bound a scrape needs, many at once; a failure is a reason, not an exception."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http.client import responses
from queue import Empty, SimpleQueue
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
        self._bounds = bounds
        self._began: float | None = None  # the GET that is under way, monotonic
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
        asked_at = clock.now()
        self._began = time.monotonic()
        try:
            answer = self._session.exchange("GET", url, self._bounds)
        except NoAnswer as error:
            return Response(asked_at, None, None, str(error))
        finally:
            self._began = None
            self._session.let_go()
        reason = _refusal(answer)
        return Response(asked_at, answer.status, answer.body if reason is None else None, reason)

    @property
    def is_stuck(self) -> bool:
        """The GET that is under way did not end at its time: a name look-up cannot be ended."""
        began = self._began
        most = self._bounds.total_seconds + _GRACE_SECONDS
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
        workers = max(1, min(workers, len(self._endpoints)))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="driftwatch-scrape")

    def close(self) -> None:
        """End what is under way and give back the connections."""
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
        asked: dict[Future[Response], str] = {}
        done: SimpleQueue[Future[Response]] = SimpleQueue()
        for instance, url in addresses.items():
            before = self._under_way.get(instance)
            if before is not None and not before.done():
                yield instance, self._no_answer("the GET before this one has not ended yet")
                continue
            future = self._pool.submit(self._endpoints[instance].get, url, self._clock)
            self._under_way[instance] = future
            asked[future] = instance
            future.add_done_callback(done.put)
        while asked:
            with suppress(Empty):
                future = done.get(timeout=_POLL_SECONDS)
                if future in asked:  # one that was given up may still come back
                    yield asked.pop(future), future.result()
                continue
            for future in [one for one, name in asked.items() if self._endpoints[name].is_stuck]:
                late = f"no answer within {self._bounds.total_seconds:g} s, not even an address"
                yield asked.pop(future), self._no_answer(late)

    def _no_answer(self, reason: str) -> Response:
        return Response(self._clock.now(), None, None, reason)
