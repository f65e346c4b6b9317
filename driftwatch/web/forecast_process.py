"""What simulates a forecast: a process of its own, so that no page waits for it."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection

from driftwatch.database_place import Place
from driftwatch.errors import DriftwatchError
from driftwatch.model import TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.web.forecast import Forecast, forecast_of, without_answer

_NICENESS = 10


@dataclass(frozen=True, slots=True)
class Job:
    """A forecast that is to be made; the database is read, never written."""

    place: Place
    plan: Plan
    key: TargetKey
    forecast: Forecast


def simulate(job: Job) -> Forecast:
    """The forecast with its answer; what cannot be known is an answer without one."""
    from driftwatch.pipeline.stored_question import stored_question
    from driftwatch.recommend.advise import advise
    from driftwatch.store import Store

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
    # Ctrl-C is for the web: it ends this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.alarm(limit_seconds)
    os.nice(_NICENESS)
    with answers:
        answers.send_bytes(simulate(job).model_dump_json().encode())
