"""A server's ``/metrics`` over time, made from what its simulated engines did.

Fed outcome by outcome (a day at a time, say) it holds what is not yet complete and the scrapes
that were not dropped; see ``docs/contributing/fleet.md`` for what is booked when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from driftwatch.collect.pages.foreign import STATS_DISABLED
from driftwatch.collect.schema import empty_scrapes, scrape_frame
from driftwatch.fleet.metrics.columns import EngineColumns
from driftwatch.fleet.metrics.engine import EngineHistory, Floats
from driftwatch.fleet.metrics.frame import Pages
from driftwatch.fleet.metrics.template import page_template
from driftwatch.fleet.server import Server
from driftwatch.simulate.outcome import Outcome

REFUSED = "connection refused"


@dataclass(frozen=True, slots=True)
class Scraped:
    """What a scraper got; the fields of a line of a recording."""

    time: datetime  # of the scrape
    status: int | str  # 200, another HTTP status, or ``exc`` where there was no answer
    body: str  # the page, or what went wrong


class MetricHistory:
    """The scrapes of one server, restarts included.

    ``epoch``: the wall time of second 0 of the simulation; ``started_seconds``: start of the first
    process on the simulation's clock; its metrics are made ``READY_AFTER_SECONDS`` later;
    ``without_buckets``, ``without_metrics``: what a scrape's configuration throws away.
    Raises ImpossibleConfiguration: the server cannot be.
    """

    def __init__(
        self,
        server: Server,
        epoch: datetime,
        started_seconds: float = -60.0,
        without_buckets: Sequence[str] = (),
        without_metrics: Sequence[str] = (),
    ) -> None:
        self._without = without_buckets, without_metrics
        self._epoch = epoch.astimezone(UTC)
        self._pages: list[Pages] = []
        self._failed: list[tuple[int, str]] = []  # unix microseconds, what went wrong
        self._order: list[tuple[int, int, int]] = []
        self._begin(server, started_seconds)

    @property
    def server(self) -> Server:
        """What the present process runs."""
        return self._server

    def _begin(self, server: Server, started_seconds: float) -> None:
        server.check()
        self._server = server
        self._started = self._epoch.timestamp() + started_seconds
        self._engine = EngineHistory(server)
        self._engine_page = EngineColumns(server)
        self._template = page_template(server, self._started).without(*self._without)

    def add(self, outcome: Outcome) -> None:
        """What the engine of the present process did since it was last told of.

        A scrape waits until the requests that had their first token by then have ended.

        Raises ValueError: times do not fit, or the engine's counters contradict its requests.
        """
        self._engine.add(outcome)
        if ready := self._engine.ready():
            self._take(self._engine.times[:ready])

    def offered(self, arrival_seconds: Floats) -> None:
        """When the next requests of the present process reach it."""
        self._engine_page.kind.arrived(arrival_seconds)

    def fail(self, scrape_seconds: Sequence[float] | Floats, body: str = REFUSED) -> None:
        """Scrapes that brought no page (before the restart that ends them, if one does)."""
        micros = self._micros(np.asarray(scrape_seconds, dtype=np.float64))
        self._failed += [(at, body) for at in micros.tolist()]

    def restart(self, server: Server, started_seconds: float) -> None:
        """The process ends and another one starts: every counter is 0 again.

        What ends after the last scrape of the old process is forgotten with it.

        Raises ImpossibleConfiguration: the new server cannot be.
        """
        self._begin(server, started_seconds)

    def _take(self, times: Floats) -> None:
        columns = self._engine_page.page_columns(times, self._engine.take(len(times)))
        columns["process_start_time_seconds"] = np.full(len(times), self._started)
        self._pages.append(
            Pages(self._server.instance, self._micros(times), self._template, columns)
        )

    def _micros(self, seconds: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        first = round(self._epoch.timestamp() * 1e6)
        return first + np.rint(seconds * 1e6).astype(np.int64)

    def _ready(self) -> list[tuple[int, int, int]]:
        """(unix microseconds, number of pages or -1, row) of every scrape that is ready."""
        if len(self._order) == len(self):
            return self._order
        order = [
            (int(micros), number, row)
            for number, pages in enumerate(self._pages)
            for row, micros in enumerate(pages.micros)
        ]
        order += [(failed[0], -1, row) for row, failed in enumerate(self._failed)]
        self._order = sorted(order)
        return self._order

    def __len__(self) -> int:
        """Scrapes that are ready."""
        return sum(len(pages.micros) for pages in self._pages) + len(self._failed)

    def answers(self) -> list[Scraped]:
        """Every scrape that is ready, as a scraper got it, in order."""
        return [self._answer(*place) for place in self._ready()]

    def _answer(self, micros: int, number: int, row: int) -> Scraped:
        time = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)
        if number >= 0:
            return Scraped(time, 200, self._pages[number].page(row))
        return Scraped(time, "exc", self._failed[row][1])

    def scrape_frame(self) -> pl.DataFrame:
        """Every scrape that is ready as rows of the scrape table: what its pages are read as."""
        frames = [empty_scrapes()]
        failed = [(at, f"no answer: {body}") for at, body in self._failed]
        for pages in self._pages:
            frame = pages.frame()
            if frame.is_empty():
                failed += [(at, STATS_DISABLED) for at in pages.micros.tolist()]
            frames.append(frame)
        rows = [
            {
                "instance": self._server.instance,
                "engine": "0",
                "time": datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros),
                "ok": False,
                "reason": reason,
            }
            for micros, reason in failed
        ]
        frames.append(scrape_frame(rows))
        every = pl.concat(frames)
        return every.sort("instance", "engine", "time", maintain_order=True).rechunk()

    def drop(self) -> None:
        """Forget the scrapes that are ready; what comes after goes on from them."""
        self._pages = []
        self._failed = []
        self._order = []
