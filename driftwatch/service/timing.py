"""Time: the schedule of a process, a clock that went back, the longest wait for a simulation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import structlog

from driftwatch.model import Advice, Reason
from driftwatch.pipeline.evaluation import Ask
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import Moment, TargetAdvice, target_advice
from driftwatch.recommend.advice import Answer
from driftwatch.service.sources import LATE

# ticks are further apart than this; a shorter step back has no effect
_SHORTEST_STEP_SECONDS = 1.0


class Schedule:
    """Calls each job in a thread of its own, at its interval; what is late is called once.

    It counts monotonic time: a wall clock that steps delays nothing.

    Args:
        failed: called with a job and its error; None = it was skipped.
    """

    def __init__(self, failed: Callable[[str, Exception | None], None]) -> None:
        self._failed, self._stopping = failed, threading.Event()
        self._threads: list[threading.Thread] = []

    def every(self, seconds: float, name: str, job: Callable[[], object]) -> None:
        """Call a job now, and each so many seconds from now on."""
        one = threading.Thread(target=self._repeat, args=(seconds, name, job), daemon=True)
        one.name = f"driftwatch-{name}"
        self._threads.append(one)
        one.start()

    def stop(self) -> None:
        """Wait for the jobs under way, and call none any more."""
        self._stopping.set()
        for one in self._threads:
            one.join()

    def _repeat(self, seconds: float, name: str, job: Callable[[], object]) -> None:
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            try:
                job()
            except Exception as error:  # noqa: BLE001 - it is tried again
                self._failed(name, error)
            due += seconds
            if (late := time.monotonic() - due) > 0:
                due += seconds * -(-late // seconds)
                self._failed(name, None)


class ClockSteps:
    """Says when the clock is behind what was collected, and when it is there again."""

    def __init__(self) -> None:
        self._log: Any = structlog.get_logger()
        self._behind_seconds = 0.0

    def note(self, collected_until: Mapping[str, datetime], now: datetime) -> bool:
        """Whether the clock is behind; said in the log when it begins and when it ends."""
        reached = max(collected_until.values(), default=now)
        before, behind = self._behind_seconds, (reached - now).total_seconds()
        self._behind_seconds = behind = behind if behind >= _SHORTEST_STEP_SECONDS else 0.0
        if behind > before:
            self._log.error(
                "the clock went back",
                seconds=round(behind - before),
                collected_until=reached.isoformat(timespec="seconds"),
                effect="no minute is evaluated twice: driftwatch waits until then",
            )
        elif before and not behind:
            self._log.info("the clock has caught up")
        return behind > 0

    def why_blind(self) -> str | None:
        """Why nothing new is evaluated; None = the clock is at most :data:`LATE` behind."""
        if self._behind_seconds <= LATE.total_seconds():
            return None
        return f"the clock went back: the next minute is in {self._behind_seconds:.0f} s"


class BoundedQuestions:
    """Asked as ``ask`` is, in a thread; what a tick waits for takes no longer than so many seconds.

    An answer that is late is none: the page says so, and asks again. While a question is still
    simulated, no other one is.
    """

    def __init__(self, seconds: float, ask: Ask = target_advice) -> None:
        self._seconds, self._ask = seconds, ask
        self._until = 0.0  # monotonic
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """A tick begins."""
        self._until = time.monotonic() + self._seconds

    def __call__(self, moment: Moment, plan: Plan, **question: Any) -> TargetAdvice:
        """The answer, or that there is none in time."""
        answers: list[TargetAdvice] = []
        remaining_seconds = self._until - time.monotonic()
        if remaining_seconds > 0 and (self._thread is None or not self._thread.is_alive()):
            # nothing waits for it at the end of the process
            self._thread = threading.Thread(
                target=lambda: answers.append(self._ask(moment, plan, **question)),
                name="driftwatch-simulation",
                daemon=True,
            )
            self._thread.start()
            self._thread.join(remaining_seconds)
        if answers:
            return answers[0]
        why = f"the simulations of this tick took over {self._seconds:g} s"
        advice = Answer(
            at=moment.at, advice=Advice(action="insufficient", reason=Reason("failed", why))
        )
        return TargetAdvice(moment.target, moment.at, advice, question.get("incident_id"), why)
