"""The slow work of ``driftwatch run`` as tasks: compaction, and the weekly reports."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from driftwatch.pipeline.plan import Plan
from driftwatch.service.report_schedule import Schedule, due_weeks, make_due
from driftwatch.store.store import Store
from driftwatch.tasks.in_process import InProcess
from driftwatch.tasks.task import Arguments, Function, Task

Configured = Callable[[], tuple[Plan, Schedule | None]]
COMPACTION, REPORTS = "compaction", "reports"
# Resolved incidents are kept as long as the longest look back that reports take.
_INCIDENTS_KEPT = timedelta(days=400)
# What receivers were sent can be looked up for so long; that they were, as long as incidents.
_PAYLOADS_KEPT = timedelta(days=7)
# Any window of five weeks back can be asked for.
_MINUTES_KEPT = timedelta(days=35)


def compaction_task(now: datetime, scrapes_before: datetime) -> Task:
    """Forget what is past its retention, scrapes before that time too, and pack hours."""
    arguments = {"now": now.isoformat(), "scrapes_before": scrapes_before.isoformat()}
    return Task(COMPACTION, "maintenance", COMPACTION, arguments)


def compact(store: Store, arguments: Arguments) -> None:
    """Do it; what another process has done meanwhile is left as it is."""
    now = datetime.fromisoformat(arguments["now"])
    store.prune(
        datetime.fromisoformat(arguments["scrapes_before"]),
        incidents_before=now - _INCIDENTS_KEPT,
        minutes_before=now - _MINUTES_KEPT,
        payloads_before=now - _PAYLOADS_KEPT,
    )
    store.pack_minutes(now)


def reports_task(store: Store, schedule: Schedule, now: datetime) -> Task | None:
    """Make the weekly reports that are due; None where none is."""
    if not due_weeks(schedule, store.report_weeks(), now):
        return None
    return Task(REPORTS, "reports", REPORTS, {"now": now.isoformat()})


def reports_function(configured: Configured) -> Function:
    """Makes them with what is configured then; a week that has its report keeps it."""

    def make(store: Store, arguments: Arguments) -> None:
        plan, schedule = configured()
        if schedule is None:
            return
        log = structlog.get_logger()
        for one in make_due(store, plan, schedule, datetime.fromisoformat(arguments["now"])):
            log.info("report made", week=one.week.name, file=str(one.file or ""))
            if one.problem is not None:
                log.error("report not written", reason=one.problem)

    return make


def in_this_process(store: Store, configured: Configured) -> InProcess:
    """What does both in a thread of the process that ticks."""
    functions = {COMPACTION: compact, REPORTS: reports_function(configured)}
    return InProcess(functions, lambda: store)
