"""A backtest of the database's minutes as a task; the pages of rules show its result."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import orjson

from driftwatch.backtest.outcome import backtest
from driftwatch.backtest.report import BacktestReport
from driftwatch.backtest.stored_archive import keep_stored
from driftwatch.backtest.stored_result import result_document
from driftwatch.model import Severity
from driftwatch.pipeline.plan import Plan
from driftwatch.store.store import Store
from driftwatch.tasks.task import Arguments, Function, Task

BACKTEST = "backtest"
_SEVERITIES: tuple[Severity, ...] = ("page", "ticket")


def backtest_task(now: datetime, since: datetime, until: datetime) -> Task:
    """Judge the minutes of a span by the rules that are configured."""
    arguments = {"now": now.isoformat(), "since": since.isoformat(), "until": until.isoformat()}
    return Task(BACKTEST, "backtests", BACKTEST, arguments)


def backtest_function(plan: Plan, folder: Path) -> Function:
    """Keeps the result in place of the one before, where that was not asked for later.

    ``folder``: where evidence is kept.
    """

    def judge(store: Store, arguments: Arguments) -> None:
        now, since, until = (
            datetime.fromisoformat(arguments[n]) for n in ("now", "since", "until")
        )
        archive = keep_stored(store, (since, until), plan, folder)
        result = backtest(archive, plan)
        pages = tuple(page for page in result.pages if page.severity in _SEVERITIES)
        report = BacktestReport(replace(result, pages=pages), _SEVERITIES)
        store.keep_backtest(orjson.dumps(result_document(report, plan.rules, now)))

    return judge
