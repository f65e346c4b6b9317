"""Sources that know the present only, for batches that ask at their own times.

A page tells what is now. A process that ticks several batches, or one batch after another process
did, scrapes on its own clock and answers each batch from what it holds of the last minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import structlog

from driftwatch.clock import Clock
from driftwatch.collect.pages.source import PagesSource
from driftwatch.collect.schema import Collected, Source, SourceProblem, empty_scrapes
from driftwatch.model import Target, TargetKey

# longer than an exchange with a page may take: what began before is there by then
_SETTLE_SECONDS = 15.0
# as much as a batch asks for again when another process ticked it last, and some minutes more
_HELD = timedelta(minutes=8)


def held(sources: Sequence[Source], clock: Clock, every_seconds: float) -> list[Source]:
    """The sources, those of the present scraped in threads from now on."""
    return [
        source if _has_a_past(source) else HeldSource(source, clock, every_seconds)
        for source in sources
    ]


def _has_a_past(source: Source) -> bool:
    from driftwatch.collect.dcgm.pages import DcgmPagesSource
    from driftwatch.collect.nvml.source import NvmlSource

    return not isinstance(source, PagesSource | DcgmPagesSource | NvmlSource)


class HeldSource:
    """Scrapes one source each ``every_seconds`` until it is closed.

    Attributes:
        live: the source.
    """

    def __init__(self, live: Source, clock: Clock, every_seconds: float) -> None:
        self.name = live.name
        self.settle_seconds = live.settle_seconds + _SETTLE_SECONDS
        self.live = live
        self._clock, self._every_seconds = clock, every_seconds
        self._held: list[tuple[datetime, Collected]] = []
        self._stored: Mapping[TargetKey, Target] = {}
        self._changed = threading.Condition()
        self._asking = threading.Lock()  # the source is used by one thread at a time
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"driftwatch {live.name} scrapes")
        self._thread.daemon = True
        self._thread.start()

    def collect(self, since: datetime, until: datetime) -> Collected:
        """What was scraped with since <= time < until; it waits for the first scrape."""
        with self._changed:
            self._changed.wait_for(lambda: self._held or self._ended.is_set())
            each = [one for _, one in self._held]
        if not each:
            return Collected(empty_scrapes(), {}, silent="it ends")
        inside = pl.col("time").is_between(since, until, closed="left")
        last = each[-1]
        return replace(
            last,
            scrapes=pl.concat([one.scrapes for one in each]).filter(inside),
            gpus=pl.concat([one.gpus for one in each]).filter(inside),
            problems=last.problems,
        )

    def version(self) -> Mapping[str, str | None]:
        """As the source says."""
        with self._asking:
            return self.live.version() if isinstance(self.live, PagesSource) else {}

    def forget(self, instances: Iterable[str]) -> None:
        """Ask these servers for their version again: they restarted."""
        with self._asking:
            if isinstance(self.live, PagesSource):
                self.live.forget(instances)

    def remember(self, stored: Mapping[TargetKey, Target]) -> None:
        """As the source does, from its next scrape on."""
        self._stored = stored

    def close(self) -> None:
        """End the thread and the source."""
        self._ended.set()
        with self._changed:
            self._changed.notify_all()
        self.live.close()
        self._thread.join(1.0)

    def _work(self) -> None:
        log: Any = structlog.get_logger()
        while not self._ended.is_set():
            now = self._clock.now()
            try:
                with self._asking:
                    if isinstance(self.live, PagesSource):
                        self.live.remember(self._stored)
                    answer = self.live.collect(now - timedelta(seconds=self._every_seconds), now)
            except Exception as error:  # noqa: BLE001 - whatever a source raises, it is asked again
                text = f"{type(error).__name__}: {error}"[:300]
                log.error("not scraped", source=self.name, reason=text)
                problem = SourceProblem(self.name, text, now)
                answer = Collected(empty_scrapes(), {}, (problem,), silent=text)
            with self._changed:
                oldest = now - _HELD
                self._held = [one for one in self._held if one[0] >= oldest] + [(now, answer)]
                self._changed.notify_all()
            self._ended.wait(self._every_seconds)
