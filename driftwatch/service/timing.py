"""Time: the schedule of a process, a clock that went back, the longest wait for a simulation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import structlog
from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobEvent,
)
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from driftwatch.model import Advice, Reason
from driftwatch.pipeline.evaluation import Ask
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import Moment, target_advice
from driftwatch.recommend.advice import Answer
from driftwatch.service.sources import LATE
from driftwatch.store.history import TargetAdvice

# ticks are further apart than this; a shorter step back has no effect
_SHORTEST_STEP_SECONDS = 1.0


class Schedule:
    """Calls each job at its interval, one call of it at a time; what is late is called once.

    APScheduler waits on the wall clock. After a step back it would wait until that is made up, so
    all jobs are then called at once.

    Args:
        failed: called with a job and its error; None = it was skipped.
    """

    def __init__(self, failed: Callable[[str, BaseException | None], None]) -> None:
        self._failed, self._stopping = failed, threading.Event()
        defaults = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        self._scheduler = BackgroundScheduler(timezone=UTC, job_defaults=defaults)
        events = EVENT_JOB_ERROR | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES
        self._scheduler.add_listener(self._ended, events)

    def every(self, seconds: float, name: str, job: Callable[[], object]) -> None:
        """Call a job at the start, and each so many seconds from then on; in its own thread."""
        self._scheduler.add_executor(ThreadPoolExecutor(1), name)
        now = datetime.now(UTC)
        options = {"id": name, "executor": name, "next_run_time": now}
        self._scheduler.add_job(job, "interval", seconds=seconds, **options)

    def start(self) -> None:
        """Begin to call them."""
        self._scheduler.start()
        threading.Thread(target=self._watch_clock, name="driftwatch-clock", daemon=True).start()

    def stop(self) -> None:
        """Wait for the jobs under way, and call none any more; nothing before the start."""
        self._stopping.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=True)

    def call_all(self) -> None:
        """Call each job now, whenever it was due."""
        for one in self._scheduler.get_jobs():
            one.modify(next_run_time=datetime.now(UTC))

    def _watch_clock(self) -> None:
        offset = time.time() - time.monotonic()
        while not self._stopping.wait(_SHORTEST_STEP_SECONDS):
            before, offset = offset, time.time() - time.monotonic()
            if before - offset >= _SHORTEST_STEP_SECONDS:
                self.call_all()

    def _ended(self, event: JobEvent) -> None:
        self._failed(event.job_id, getattr(event, "exception", None))


class ClockSteps:
    """Logs when the clock goes back behind what was collected, and when it has caught up."""

    def __init__(self) -> None:
        self._log: Any = structlog.get_logger()
        self._behind_seconds = 0.0

    def note(self, collected_until: Mapping[str, datetime], now: datetime) -> bool:
        """Whether the clock is behind what was collected."""
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
    """Answers questions as ``ask`` does, in a thread; a tick waits so many seconds for all of them.

    For a late answer the page says that there is none, and driftwatch asks again later. While one
    simulation runs, no other begins.
    """

    def __init__(self, seconds: float, ask: Ask = target_advice) -> None:
        self._seconds, self._ask = seconds, ask
        self._until = 0.0  # monotonic
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin a tick: its seconds run from now on."""
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
        return moment.stored_answer(advice, question.get("incident_id"), why)
