"""The slow work of a database, each hour: old rows go, hours are packed, reports are made."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog

from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import HISTORY
from driftwatch.pipeline.stored_state import evaluated_until
from driftwatch.service.report_schedule import Schedule, make_due
from driftwatch.store.store import Store

# Resolved incidents are kept as long as the longest look back that reports take.
_INCIDENTS_KEPT = timedelta(days=400)
# What receivers were sent can be looked up for so long; that they were, as long as incidents.
_PAYLOADS_KEPT = timedelta(days=7)
# Any window of five weeks back can be asked for.
_MINUTES_KEPT = timedelta(days=35)


def compact(store: Store, now: datetime, retention: timedelta) -> None:
    """Forget what is past its retention, and pack hours; twice at once does no harm."""
    # a restart needs the readings before the last evaluated minute, however long ago it was
    needed = (evaluated_until(store) or now) - HISTORY
    store.prune(
        min(now - retention, needed),
        incidents_before=now - _INCIDENTS_KEPT,
        minutes_before=now - _MINUTES_KEPT,
        payloads_before=now - _PAYLOADS_KEPT,
    )
    store.pack_minutes(now)


def make_reports(store: Store, plan: Plan, schedule: Schedule | None, now: datetime) -> None:
    """Make the weekly reports that are due; a week that has its report keeps it."""
    if schedule is None:
        return
    log = structlog.get_logger()
    for one in make_due(store, plan, schedule, now):
        log.info("report made", week=one.week.name, file=str(one.file or ""))
        if one.problem is not None:
            log.error("report not written", reason=one.problem)
