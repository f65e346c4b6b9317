"""The task that answers a what-if: a process of its own simulates, so that no page waits for it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

import structlog

from driftwatch.database_place import Place
from driftwatch.errors import DriftwatchError
from driftwatch.model import TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.store.store import Store
from driftwatch.tasks.in_process import InProcess
from driftwatch.tasks.task import Arguments, Function, Task
from driftwatch.web.forecast import Forecast, forecast_of, without_answer

WHAT_IF = "what-if"
LIMIT_SECONDS = 120
_NICENESS = 10


@dataclass(frozen=True, slots=True)
class Job:
    """A forecast that is to be made; the database is read, never written."""

    place: Place
    plan: Plan
    key: TargetKey
    forecast: Forecast


def what_if_task(key: TargetKey, forecast: Forecast) -> Task:
    """Answer a forecast that waits, with the traffic of a target."""
    arguments = {
        "target": [key.instance, key.engine],
        "forecast": forecast.model_dump(mode="json"),
    }
    return Task(WHAT_IF, "interactive", forecast.forecast_id, arguments)


def what_if_function(
    plan: Plan,
    limit_seconds: int = LIMIT_SECONDS,
    stopping: threading.Event | None = None,
) -> Function:
    """Answers within a limit; a forecast that has its answer keeps it.

    ``stopping``: set when this process ends: then there is no answer.
    """
    ends = threading.Event() if stopping is None else stopping

    def answer(store: Store, arguments: Arguments) -> None:
        forecast = Forecast.model_validate(arguments["forecast"])
        number = forecast.forecast_id
        if store.forecast_state(number) not in ("waiting", None):  # None: not committed yet
            return
        job = Job(store.place, plan, TargetKey(*arguments["target"]), forecast)
        result = _simulated(job, limit_seconds, ends)
        if result is not None:
            store.answer_forecast(number, result.model_dump_json().encode())
            log = structlog.get_logger()
            log.info("forecast", id=number, target=job.key.text, state=result.state)

    return answer


def in_this_process(
    open_store: Callable[[], Store], plan: Plan, limit_seconds: int = LIMIT_SECONDS
) -> InProcess:
    """What answers the what-ifs of one web process."""
    stopping = threading.Event()
    functions = {WHAT_IF: what_if_function(plan, limit_seconds, stopping)}
    return InProcess(functions, open_store, stopping)


def simulate(job: Job) -> Forecast:
    """The forecast with its answer; what cannot be known is an answer without one."""
    from driftwatch.pipeline.stored_question import stored_question
    from driftwatch.recommend.advise import advise

    request = job.forecast
    try:
        with Store.open(job.place, migrate=False) as store:
            question = stored_question(
                store, job.plan, job.key, request.traffic_until, request.what_if
            )
        return forecast_of(request, advise(question, table=False))
    except DriftwatchError as error:
        return without_answer(request, error.message)


def work(job: Job, answers: Connection, limit_seconds: int) -> None:
    """The process: sends the forecast as JSON, or nothing where it fails; ends itself in time."""
    # Ctrl-C is for the process that started it: it ends this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.alarm(limit_seconds)
    os.nice(_NICENESS)
    with answers:
        answers.send_bytes(simulate(job).model_dump_json().encode())


def _simulated(job: Job, limit_seconds: int, stopping: threading.Event) -> Forecast | None:
    """What the process answers, or why it does not; None where this one ends."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(job, sender, limit_seconds + 5), daemon=True)
    process.start()
    sender.close()
    try:
        for _ in range(10 * limit_seconds):
            if stopping.is_set():
                return None
            if receiver.poll(0.1):
                return Forecast.model_validate_json(receiver.recv_bytes())
        why = f"the simulation took longer than {limit_seconds} s"
    except EOFError:
        why = "the simulation failed; the log has more"
    finally:
        process.kill()
        process.join()
        process.close()
        receiver.close()
    return without_answer(job.forecast, why)
