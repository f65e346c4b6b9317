"""A recorded vLLM server on the loopback: /metrics shows the page of the moment."""

from __future__ import annotations

import gzip
import json
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Literal, Self

from fakes.loopback import Answer, LoopbackServer, Request

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"  # as vLLM's

Page = tuple[float, str | None]


def read_pages(path: Path) -> list[Page]:
    """``scrapes.jsonl.gz`` → (unix seconds, page), None where the scrape failed."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        scrapes = [json.loads(line) for line in lines]
    return [(s["t"], s["body"] if s["status"] == 200 else None) for s in scrapes]


class ReplayedExposition(LoopbackServer):
    """Serves the newest page that is not younger than its clock; before the first, the first.

    Args:
        scrapes: (unix seconds, page), sorted; None where the recorded server did not answer.
        speed: recorded seconds per second, counted from when the server is entered.
        clock: gives the recorded time in unix seconds instead, for tests that set it.
        when_down: what a failed scrape looks like: a 503, or a connection closed unanswered.

    Raises:
        ValueError: there is no page, or they are not in order.
    """

    def __init__(
        self,
        scrapes: Sequence[Page],
        *,
        speed: float = 1.0,
        clock: Callable[[], float] | None = None,
        when_down: Literal["503", "drop"] = "503",
    ) -> None:
        self._times = [at for at, _ in scrapes]
        self._bodies = [body for _, body in scrapes]
        if not self._times or self._times != sorted(self._times):
            raise ValueError("a replay needs at least one page, in order of time")
        super().__init__()
        self._speed = speed
        self._clock = clock
        self._when_down = when_down
        self._entered = time.monotonic()

    def __enter__(self) -> Self:
        self._entered = time.monotonic()
        return super().__enter__()

    @property
    def url(self) -> str:
        return f"{self.address}/metrics"

    @property
    def instance(self) -> str:
        return self.address.removeprefix("http://")

    def now(self) -> float:
        if self._clock is not None:
            return self._clock()
        return self._times[0] + (time.monotonic() - self._entered) * self._speed

    @property
    def ended(self) -> bool:
        return self.now() >= self._times[-1]

    def page(self) -> str | None:
        """The page of the moment, None while the recorded server was down."""
        return self._bodies[max(0, bisect_right(self._times, self.now()) - 1)]

    def judge(self, request: Request) -> Answer:
        if request.path.partition("?")[0] != "/metrics":
            return Answer(404, '{"detail":"Not Found"}', {"Content-Type": "application/json"})
        body = self.page()
        if body is None:
            return Answer(503, "")
        return Answer(200, body, {"Content-Type": CONTENT_TYPE})

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        if self._when_down == "drop" and not self.planned and self.page() is None:
            handler.close_connection = True
            return
        super()._serve(handler)
