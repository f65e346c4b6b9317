"""Forecasts in the background: one at a time, few wait, each within a time limit."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import structlog

from driftwatch.errors import StoreError, UsageError
from driftwatch.web.forecast import Forecast, without_answer
from driftwatch.web.forecast_process import Job, work

LIMIT_SECONDS, MOST_WAITING = 120, 4
Keep = Callable[[Forecast], None]
Begin = Callable[[Job], None]


class Forecasts:
    """The forecasts of one web process. ``limit_seconds``: how long one may take."""

    def __init__(self, limit_seconds: int = LIMIT_SECONDS) -> None:
        self.limit_seconds = limit_seconds
        self._context = multiprocessing.get_context("spawn")
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._waiting: dict[str, str] = {}  # forecast → who asked for it, in turn
        self._threads = ThreadPoolExecutor(1, "forecast")

    def turn(self, forecast_id: str) -> int | None:
        """How many come before it; 0 = it is simulated now, None = it is not here."""
        waiting = list(self._waiting)
        return waiting.index(forecast_id) if forecast_id in waiting else None

    @contextmanager
    def place_for(self, person: str, keep: Keep) -> Iterator[Begin]:
        """A place for one forecast: what it yields begins a job, and ``keep`` gets its answer.

        Raises UsageError: this person has one that is not answered yet, or too many wait.
        """
        with self._lock:
            if person in self._waiting.values():
                message = "a forecast that you asked for is not answered yet"
                raise UsageError(message, help_text="wait for it: each person has one at a time")
            if len(self._waiting) > MOST_WAITING:
                message = f"{len(self._waiting)} forecasts wait already"
                raise UsageError(message, help_text="ask again in a minute")
            yield lambda job: self._begin(job, person, keep)

    def close(self) -> None:
        """End what runs; what waits is not begun."""
        self._closing.set()
        self._threads.shutdown(cancel_futures=True)

    def _begin(self, job: Job, person: str, keep: Keep) -> None:
        self._waiting[job.forecast.forecast_id] = person
        self._threads.submit(self._answer, job, keep)

    def _answer(self, job: Job, keep: Keep) -> None:
        log = structlog.get_logger()
        number = job.forecast.forecast_id
        try:
            if (forecast := self._simulated(job)) is not None:
                keep(forecast)
                log.info("forecast", id=number, target=job.key.text, state=forecast.state)
        except StoreError as error:
            log.warning("forecast not kept", id=number, reason=error.message)
        finally:
            self._waiting.pop(number, None)

    def _simulated(self, job: Job) -> Forecast | None:
        """What the process answers, or why it does not; None where the web ends."""
        receiver, sender = self._context.Pipe(duplex=False)
        arguments = (job, sender, self.limit_seconds + 5)
        process = self._context.Process(target=work, args=arguments, daemon=True)
        process.start()
        sender.close()
        try:
            for _ in range(10 * self.limit_seconds):
                if self._closing.is_set():
                    return None
                if receiver.poll(0.1):
                    return Forecast.model_validate_json(receiver.recv_bytes())
            why = f"the simulation took longer than {self.limit_seconds} s"
        except EOFError:
            why = "the simulation failed; the log of driftwatch web has more"
        finally:
            process.kill()
            process.join()
            process.close()
            receiver.close()
        return without_answer(job.forecast, why)
