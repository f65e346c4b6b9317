"""A server's ``/metrics`` over time, made from what its simulated engines did.

Fed outcome by outcome (a day at a time, say) it holds what is not yet complete and the scrapes
that were not dropped; see ``docs/contributing/fleet.md`` for what is booked when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import polars as pl

from driftwatch.collect.pages.foreign import STATS_DISABLED
from driftwatch.collect.schema import empty_scrapes, scrape_frame
from driftwatch.fleet.metrics.columns import (
    EngineColumns,
    HttpHistory,
    process_columns,
)
from driftwatch.fleet.metrics.engine import EngineHistory, Floats
from driftwatch.fleet.metrics.frame import Pages
from driftwatch.fleet.metrics.template import (
    PROCESS,
    FirstAnswers,
    PageTemplate,
    page_template,
)
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

    Args:
        epoch: the wall time of second 0 of the simulation.
        started_seconds: start of the first process on the simulation's clock; its metrics are made
            ``server.ready_after_seconds`` later.

    Raises:
        ImpossibleConfiguration: the server cannot be.
    """

    def __init__(self, server: Server, epoch: datetime, started_seconds: float = -60.0) -> None:
        self._epoch = epoch.astimezone(UTC)
        self._pages: list[Pages] = []
        self._failed: list[tuple[int, str, tuple[str, ...], str | int, str]] = []
        self._last_labels: tuple[str, ...] | None = None
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
        self._engines = [EngineHistory(server, engine) for engine in range(server.engines)]
        self._engine_pages = [EngineColumns(server) for _ in self._engines]
        self._http = HttpHistory()
        self._templates: dict[FirstAnswers, PageTemplate] = {}
        self._answers = FirstAnswers()

    def add(
        self, outcome: Outcome, engine: int = 0, *, unfinished: pl.DataFrame | None = None
    ) -> None:
        """What one engine of the present process did since it was last told of.

        Scrapes of all engines must be at the same times.

        Args:
            unfinished: ``Engine.unfinished()``: requests still under way tell their first token and
                nothing else. Without it the last scrapes wait until these requests end.

        Raises:
            ValueError: times do not fit, or the engine's counters contradict its requests.
        """
        self._http.add(outcome.requests)
        self._engines[engine].add(outcome, unfinished)
        self._take(min(one.ready() for one in self._engines))

    def offered(self, arrival_seconds: Floats) -> None:
        """When the next requests of the present process reach it."""
        for engine_page in self._engine_pages:
            engine_page.kind.arrived(arrival_seconds)

    def fail(
        self,
        scrape_seconds: Sequence[float] | Floats,
        status: int | str = "exc",
        body: str = REFUSED,
    ) -> None:
        """Scrapes that brought no page (before the restart that ends them, if one does)."""
        for micros in self._micros(np.asarray(scrape_seconds, dtype=np.float64)).tolist():
            text = f"answered {status}" if isinstance(status, int) else f"no answer: {body}"
            self._failed.append((micros, text, self._labels(), status, body))

    def restart(self, server: Server, started_seconds: float) -> None:
        """The process ends and another one starts: every counter is 0 again.

        What ends after the last scrape of the old process is forgotten with it.

        Raises:
            ValueError: as :meth:`finish`.
            ImpossibleConfiguration: the new server cannot be.
        """
        self.finish()
        self._begin(server, started_seconds)

    def finish(self) -> None:
        """All scrapes of the present process become ready.

        Raises:
            ValueError: a first token is not known: its request has not ended, and ``add`` was
                not given ``unfinished=Engine.unfinished()``.
        """
        for number, engine in enumerate(self._engines):
            lacking = engine.lacking()
            if len(lacking) and lacking[-1] > 0:
                raise ValueError(
                    f"{self._server.instance} engine {number}: {lacking[-1]:g} first tokens before "
                    f"{engine.times[-1]:g} s are of requests that were not told: "
                    "add(..., unfinished=Engine.unfinished())"
                )

    def _take(self, ready: int) -> None:
        if not ready:
            return
        times = self._engines[0].times[:ready]
        for engine in self._engines[1:]:
            if not np.array_equal(engine.times[:ready], times):
                raise ValueError("the engines of one server are scraped at the same times")
        of_engines = [
            engine_page.page_columns(times, engine.take(ready))
            for engine, engine_page in zip(self._engines, self._engine_pages, strict=True)
        ]
        answers = [self._http.first(which, float(times[-1])) for which in (False, True)]
        columns = self._http.take(times)
        answer_counts = columns["http_requests_2xx"] + columns["http_requests_5xx"]
        columns |= process_columns(self._started, times, of_engines, answer_counts)
        for name in ("rejected_reqs", "rejected_tokens"):
            columns[name] = np.sum([engine[name] for engine in of_engines], axis=0)
        every = {(name, PROCESS): values for name, values in columns.items()}
        for number, engine_columns in enumerate(of_engines):
            every |= {(name, number): values for name, values in engine_columns.items()}
        self._render(times, every, answers)

    def _render(
        self,
        times: Floats,
        columns: dict[tuple[str, int], Floats],
        answers: Sequence[float | None],
    ) -> None:
        """Pages of scrapes, apart where the first HTTP answer of a kind adds lines."""
        epoch = self._epoch.timestamp()
        first_times = [self._answers.with_2xx, self._answers.with_5xx]
        new = [at if had is None else None for at, had in zip(answers, first_times, strict=True)]
        cuts = {0, len(times)} | {
            int(np.searchsorted(times, at, side="left")) for at in new if at is not None
        }
        places = sorted(cuts)
        for first, after in pairwise(places):
            for kind, at in enumerate(new):
                if at is not None and at <= times[first]:
                    first_times[kind] = epoch + at
            self._answers = FirstAnswers(*first_times)
            template = self._template(self._answers)
            part = {key: values[first:after] for key, values in columns.items()}
            self._pages.append(
                Pages(self._server.instance, self._micros(times[first:after]), template, part)
            )
        if self._server.log_stats:
            self._last_labels = self._labels()

    def _template(self, answers: FirstAnswers) -> PageTemplate:
        template = self._templates.get(answers)
        if template is None:
            template = page_template(self._server, self._started, answers)
            self._templates[answers] = template
        return template

    def _labels(self) -> tuple[str, ...]:
        """Engines that a scraper knows of."""
        if not self._server.log_stats:
            return self._last_labels or ("0",)
        return tuple(str(engine) for engine in range(self._server.engines))

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

    def page(self, number: int) -> str:
        """The text of a scrape that is ready, by its number; "" where it failed."""
        answer = self._answer(*self._ready()[number])
        return answer.body if answer.status == 200 else ""

    def _answer(self, micros: int, number: int, row: int) -> Scraped:
        time = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)
        if number >= 0:
            return Scraped(time, 200, self._pages[number].page(row))
        _, _, _, status, body = self._failed[row]
        return Scraped(time, status, body)

    def scrape_frame(self) -> pl.DataFrame:
        """Every scrape that is ready as rows of the scrape table: what its pages are read as."""
        frames = [empty_scrapes()]
        failed = list(self._failed)
        for pages in self._pages:
            frame = pages.frame()
            if frame.is_empty():
                failed += [
                    (at, STATS_DISABLED, self._last_labels or ("0",), 200, "")
                    for at in pages.micros.tolist()
                ]
            frames.append(frame)
        frames.append(
            scrape_frame(
                [
                    {
                        "instance": self._server.instance,
                        "engine": engine,
                        "time": datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros),
                        "ok": False,
                        "reason": reason,
                    }
                    for micros, reason, engines, _, _ in failed
                    for engine in engines
                ]
            )
        )
        every = pl.concat(frames)
        return every.sort("instance", "engine", "time", maintain_order=True).rechunk()

    def drop(self) -> None:
        """Forget the scrapes that are ready; what comes after goes on from them."""
        self._pages = []
        self._failed = []
        self._order = []
