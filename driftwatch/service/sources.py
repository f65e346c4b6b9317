"""Ask all sources at once, and wait for none too long.

Each source has a thread of its own, so that it is used by one at a time. A tick waits for answers a
bounded time; what is not there by then is taken by a later tick. A source that falls behind holds
nobody up: its targets' minutes are evaluated without it, with the reason.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from driftwatch.collect.schema import Collected, Source, SourceProblem, empty_scrapes
from driftwatch.errors import DriftwatchError
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.roster import TickInput
from driftwatch.pipeline.state import FIRST_LOOK
from driftwatch.store.progress import batch_of

# A source this far behind what it should have is late.
LATE = timedelta(seconds=90)
MINUTE = timedelta(minutes=1)
# A tick waits for its sources as long as its interval, but at least this long.
SHORTEST_WAIT_SECONDS = 10.0
_Question = tuple[str, int]  # source, number of the batch that asks


class _Answer(NamedTuple):
    """What became of one question."""

    collected: Collected
    until: datetime | None  # None where the question has to be repeated
    seconds: float
    failed: bool


@dataclass(frozen=True, slots=True)
class OwnPools:
    """The pools of one batch."""

    number: int
    of: int
    plan: Plan

    def has_pool(self, pool: str) -> bool:
        """Whether a pool is among them."""
        return batch_of(pool, self.of) == self.number

    def targets(self, listed: Mapping[TargetKey, Target]) -> set[TargetKey]:
        """Those of the listed targets that are in them (:data:`driftwatch.collect.schema.Own`)."""
        return {key for key, one in listed.items() if self.has_pool(self.plan.pool_of(one).name)}


class Collecting:
    """Asks the sources, each in a thread of its own; each batch asks for itself."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = tuple(sources)
        self._lock = threading.Lock()
        self._threads = {one.name: ThreadPoolExecutor(1, one.name) for one in self._sources}
        # answers that no tick has taken → when the question was put, monotonic
        self._asked: dict[_Question, tuple[Future[_Answer], float]] = {}
        self._first_asked: dict[_Question, datetime] = {}
        self._silent: dict[str, str] = {}  # name of a source that failed last → what that means
        self._ended: Future[Any] = Future()

    def gather(
        self,
        collected_until: Mapping[str, datetime],
        now: datetime,
        wait_seconds: float,
        own: OwnPools | None = None,
        stored: Mapping[str, Mapping[TargetKey, Target]] | None = None,
    ) -> TickInput:
        """Ask every source that is free, and take what comes in time.

        A source that keeps any batch waiting for longer than ``wait_seconds`` is not waited for.

        Args:
            now: aware, UTC.
            wait_seconds: how long to wait for them.
            own: ask for the targets of this batch, where a source can; None = for all.
            stored: by source, targets that keep their names.
        """
        began, number = time.monotonic(), 0 if own is None else own.number
        with self._lock:
            for source in self._sources:
                since = collected_until.get(source.name, now - FIRST_LOOK)
                self._ask(source, since, now, began, own, (stored or {}).get(source.name, {}))
            hung = {
                name
                for (name, _), (answer, at) in self._asked.items()
                if not answer.done() and began - at > wait_seconds
            }
            ours = {name: one for (name, of), (one, _) in self._asked.items() if of == number}
        waiting = {answer for name, answer in ours.items() if name not in hung}
        while waiting and not self._ended.done():
            left = max(0.0, began + wait_seconds - time.monotonic())
            done, _ = wait([*waiting, self._ended], left, FIRST_COMPLETED)
            waiting = waiting - done if done else set()
        answers = {
            one.name: ours[one.name].result()
            for one in self._sources
            if one.name in ours and ours[one.name].done()
        }
        failed = tuple(name for name, answer in answers.items() if answer.failed)
        with self._lock:
            for name in answers:
                self._asked.pop((name, number), None)
                self._silent.pop(name, None)
            # one that was not asked again since it failed is as silent as before
            self._silent |= {name: f"{name} cannot answer" for name in failed}
            silent = dict(self._silent)
        until = dict(collected_until)
        for name, answer in answers.items():
            if answer.until is not None:
                # one that came late may be older than what another process has committed since
                until[name] = max(answer.until, until.get(name, answer.until))
        complete, late = self._progress(until, now, number)
        return TickInput.of(
            self._sources,
            {name: answer.collected for name, answer in answers.items()},
            complete,
            until,
            late=late,
            seconds={name: answer.seconds for name, answer in answers.items()},
            failed=failed,
            incomplete=next((why for _, why in sorted((silent | late).items())), None),
        )

    def _ask(
        self,
        source: Source,
        since: datetime,
        now: datetime,
        began: float,
        own: OwnPools | None,
        stored: Mapping[TargetKey, Target],
    ) -> None:
        """Ask a source that is free and has something new; the lock is held."""
        question = source.name, 0 if own is None else own.number
        edge = now - timedelta(seconds=source.settle_seconds)
        self._first_asked.setdefault(question, now)
        if question in self._asked or self._ended.done() or edge <= since:
            return
        # minutes are judged whole, and an API repeats all labels with each answer: four scrapes in
        # one take a third of the processor that they take one by one
        is_complete = edge - since >= MINUTE or edge.minute != since.minute
        if is_complete or not getattr(source, "by_minute", False):
            narrow = own if getattr(source, "narrows", False) else None
            answer = self._threads[source.name].submit(_answer, source, since, edge, narrow, stored)
            self._asked[question] = answer, began

    def free(self, name: str) -> bool:
        """Nothing is under way at this source: another question may be put to it."""
        with self._lock:
            return name not in self._busy()

    def end(self) -> None:
        """Wait for nobody any more; sources that are under way are closed, so that they end."""
        with self._lock:
            busy = self._busy()
            if not self._ended.done():
                self._ended.set_result(None)
        for source in self._sources:
            if source.name in busy:
                source.close()
            self._threads[source.name].shutdown(wait=False)

    def _busy(self) -> set[str]:
        return {name for (name, _), (answer, _) in self._asked.items() if not answer.done()}

    def _progress(
        self, until: Mapping[str, datetime], now: datetime, number: int
    ) -> tuple[datetime, dict[str, str]]:
        """Up to where everything is collected but for late sources; those, and why they are.

        ``until``: per source name, up to where it has answered.
        """
        late: dict[str, str] = {}
        edges: list[datetime] = []
        for source in self._sources:
            name = source.name
            # one that never answered is late when its first question is old enough
            reached = until.get(name, self._first_asked[name, number])
            behind = now - timedelta(seconds=source.settle_seconds) - reached
            if behind > LATE:
                late[name] = f"{name}: no answer for {behind.total_seconds():.0f} s"
            else:
                edges.append(until.get(name, now - FIRST_LOOK))
        return min(edges, default=now), late


def _answer(
    source: Any,
    since: datetime,
    edge: datetime,
    own: OwnPools | None,
    stored: Mapping[TargetKey, Target],
) -> _Answer:
    """The source's answer; an error is a problem with its name, and the question is repeated."""
    began = time.monotonic()
    try:
        if hasattr(source, "remember"):
            source.remember(stored)
        question = (since, edge) if own is None else (since, edge, own.targets)
        collected: Collected = source.collect(*question)
    except Exception as error:  # noqa: BLE001 - whatever a source raises must not end the tick
        return _Answer(_failure(source.name, error, edge), None, time.monotonic() - began, True)
    return _Answer(collected, edge, time.monotonic() - began, collected.silent is not None)


def _failure(name: str, error: Exception, at: datetime) -> Collected:
    """The answer of a source that raised: nothing, and why."""
    is_ours = isinstance(error, DriftwatchError)
    text = (str(error) if is_ours else f"{type(error).__name__}: {error}")[:300]
    return Collected(empty_scrapes(), {}, (SourceProblem(name, text, at),), silent=text)
