"""``driftwatch rules backtest`` over the database: what it leaves there; and for a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from driftwatch.cli.history import History
from driftwatch.cli.options import print_note
from driftwatch.errors import StoreError, UsageError

if TYPE_CHECKING:
    from driftwatch.backtest.report import BacktestReport
    from driftwatch.pipeline.plan import Plan


def defer_backtest(history: History, *, is_plain: bool) -> None:
    """Leave it to a worker; ``is_plain``: nothing but the configured rules is asked for.

    Raises UsageError: no worker does it like this, or there can be none.
    """
    from driftwatch.backtest.task import backtest_task
    from driftwatch.clock import SystemClock
    from driftwatch.tasks.queue import WorkerQueue, require_queue, require_tables

    if not is_plain or not history.is_stored:
        raise UsageError(
            "--defer is for the configured rules over the database, without other options",
            help_text="leave out --defer, or the other options",
        )
    with history.store() as store:
        require_queue(store.place)
        require_tables(store)
        since, until = history.stored_span(store)
        is_new = WorkerQueue().defer(store, backtest_task(SystemClock().now(), since, until))
    click.echo("deferred: see driftwatch tasks" if is_new else "one waits already", err=True)


def keep_result(history: History, report: BacktestReport, plan: Plan) -> None:
    """Keep how often each rule fired in the database, for its page; a note where that fails."""
    import orjson

    from driftwatch.backtest.stored_result import result_document
    from driftwatch.clock import SystemClock

    document = result_document(report, plan.rules, SystemClock().now())
    try:
        with history.store() as store:
            store.keep_backtest(orjson.dumps(document))
    except StoreError as error:
        print_note(f"the pages of rules do not show this result: {error.message}")
