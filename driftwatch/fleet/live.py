"""The pages of a scenario's servers over HTTP, at the scenario's pace.

A page shows what the server would show at that moment of the scenario.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from math import inf
from typing import Self

from driftwatch.fleet.loopback import Answer, LoopbackServer, Request
from driftwatch.fleet.metrics.history import Scraped
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.server_run import Chunk
from driftwatch.fleet.servers import exporter_of, instance_of, seconds_of, servers_of

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"  # as vLLM's
_DCGM_TYPE = "text/plain; charset=utf-8"


class Clock:
    """The scenario's time.

    ``now``: a monotonic clock in seconds; ``start_seconds``: unix seconds of the scenario that it
    begins at.
    """

    def __init__(self, now: Callable[[], float], start_seconds: float) -> None:
        self._now, self._start = now, start_seconds
        self._began = now()

    def __call__(self) -> float:
        """Unix seconds in the scenario."""
        return self._start + self._now() - self._began


class LivePages(LoopbackServer):
    """One server, or one exporter, on a port of its own.

    ``scrapes``: what a scraper got, in order; held packed; ``clock``: the scenario's time in unix
    seconds; ``listed``: stretches (unix seconds) in which there is such a server; 503 outside of
    them.
    """

    def __init__(
        self,
        scrapes: Sequence[Scraped],
        clock: Callable[[], float],
        content_type: str,
        listed: Sequence[tuple[float, float]] = ((-inf, inf),),
    ) -> None:
        super().__init__()
        ordered = sorted(scrapes, key=lambda scrape: scrape.time)
        self._times = [scrape.time.timestamp() for scrape in ordered]
        self._packed = [
            zlib.compress(scrape.body.encode(), 1) if scrape.status == 200 else None
            for scrape in ordered
        ]
        self._clock, self._content_type, self._listed = clock, content_type, listed

    @property
    def url(self) -> str:
        """Address of the metrics page."""
        return f"{self.address}/metrics"

    def judge(self, request: Request) -> Answer:
        """The newest page, 503 while the server is down or not scraped, 404 for any other path."""
        self.requests.clear()  # nobody asks for them, and a demo runs for hours
        path, now = request.path.partition("?")[0], self._clock()
        if not any(first <= now < last for first, last in self._listed):
            return Answer(503)
        if path == "/health":
            return Answer(200)  # a hung engine answers this as well
        if path != "/metrics":
            return Answer(404, '{"detail":"Not Found"}', {"Content-Type": "application/json"})
        place = bisect_right(self._times, now) - 1
        packed = self._packed[max(0, place)] if self._times else None
        if packed is None:
            return Answer(503)
        return Answer(200, zlib.decompress(packed).decode(), {"Content-Type": self._content_type})


class LiveFleet:
    """Every server and exporter of a scenario.

    ``chunks``: with the texts of the pages; ``clock``: the scenario's time in unix seconds.
    """

    def __init__(
        self, scenario: Scenario, chunks: Iterable[Chunk], clock: Callable[[], float]
    ) -> None:
        pages: dict[int, list[Scraped]] = {}
        gpus: dict[int, list[Scraped]] = {}
        for chunk in chunks:
            pages.setdefault(chunk.number, []).extend(chunk.answers)
            gpus.setdefault(chunk.number, []).extend(chunk.gpu_answers)
        begin, self._end = seconds_of(scenario)
        listed = {
            server.number: [(begin + first, begin + last) for first, last in server.listed]
            for server in servers_of(scenario)
        }
        self._servers = {
            instance_of(scenario, number): LivePages(scrapes, clock, CONTENT_TYPE, listed[number])
            for number, scrapes in pages.items()
        }
        self._exporters = {
            exporter_of(scenario, number): LivePages(scrapes, clock, _DCGM_TYPE, listed[number])
            for number, scrapes in gpus.items()
            if scrapes
        }
        self._clock = clock
        self._open = ExitStack()

    @property
    def urls(self) -> dict[str, str]:
        """Server of the scenario → address of its page."""
        return {name: server.url for name, server in self._servers.items()}

    @property
    def gpu_urls(self) -> dict[str, str]:
        """Exporter of the scenario → address of its page."""
        return {name: server.url for name, server in self._exporters.items()}

    @property
    def ended(self) -> bool:
        """The scenario is over; the last pages are served on until the fleet is closed."""
        return self._clock() >= self._end

    def __enter__(self) -> Self:
        for server in (*self._servers.values(), *self._exporters.values()):
            self._open.enter_context(server)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()
