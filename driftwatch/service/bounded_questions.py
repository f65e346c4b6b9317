"""Simulations of a tick, within a bound: a page goes out without an answer that takes too long."""

from __future__ import annotations

import threading
import time
from typing import Any

from driftwatch.model import Reason, Recommendation
from driftwatch.pipeline.evaluation import Ask
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import Moment, TargetAdvice, target_advice
from driftwatch.recommend.advice import Advice


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
        advice = Advice(moment.at, Recommendation("insufficient", Reason("failed", why)))
        return TargetAdvice(moment.target, moment.at, advice, question.get("incident_id"), why)
