"""``driftwatch rules backtest``: the pages that rules would have sent over a history."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.printer import Progress, print_json, print_note
from driftwatch.errors import NoVerdict, Unavailable

if TYPE_CHECKING:
    from driftwatch.backtest.pages import Marked
    from driftwatch.backtest.report import BacktestReport
    from driftwatch.backtest.stored import StoredHistory
    from driftwatch.model import Severity
    from driftwatch.pipeline.plan import Plan
    from driftwatch.store import Store


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options ask for, besides the history.

    Attributes:
        rules: files, folders or globs; empty = the configuration's, else the shipped ones.
        against: files or a folder; None = nothing is compared.
    """

    rules: tuple[Path, ...]
    against: Path | None
    severities: tuple[Severity, ...]


@click.command("backtest")
@click.argument("rules", nargs=-1, type=click.Path(path_type=Path), metavar="[RULES]...")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Compare with the rules of this folder: of another checkout, or a changed copy.",
)
@click.option("--list", "with_list", is_flag=True, help="List every page.")
@click.option("--notices", is_flag=True, help="Count notices too.")
@json_option
@history_options("recordings", "prometheus", "span", "baseline", "db", "pools", "serving")
def command(
    rules: tuple[Path, ...],
    against: Path | None,
    with_list: bool,
    notices: bool,
    as_json: bool,
    history: History,
) -> None:
    """Count and list the pages that rules would have sent over a history.

    RULES are files, folders or globs; without any the configuration's, else the shipped ones.
    The history is a Prometheus, recordings, or the database. Nothing is simulated.
    Exit: 0 answered, 2 usage or configuration, 4 no data or no answer.
    """
    from driftwatch.backtest.report import text_lines

    severities: tuple[Severity, ...] = ("page", "ticket")
    wanted = Wanted(
        rules=rules,
        against=against,
        severities=(*severities, "notice") if notices else severities,
    )
    report = _report(history, wanted)
    if as_json:
        print_json(report.document())
    else:
        for line in text_lines(report, with_list=with_list, piped=not sys.stdout.isatty()):
            click.echo(line)


def _report(history: History, wanted: Wanted) -> BacktestReport:
    """Everything that the options ask for.

    Raises:
        ConfigError: a rule file or the configuration is wrong.
        NoVerdict: the range holds no data, or the API stopped answering.
        UsageError: options that do not go together.
    """
    from driftwatch.backtest.stored import NOTE, StoredHistory
    from driftwatch.cli.replay_summary import with_proposals

    plan = with_proposals(history.plan_with(wanted.rules))
    other = _other_version(history, plan, wanted)
    marks = _marks(history)
    progress = Progress("reading")
    with (
        _how_to_go_on(),
        # what rules decide is decided here: the store needs the evidence alone
        history.store(plan.without_rules()) as store,
    ):
        days = StoredHistory(store, _span(history, store), plan)
        if history.is_stored:
            print_note(NOTE)
        return _of_rules(days, plan, other, wanted, marks, progress)


def _span(history: History, store: Store) -> tuple[datetime, datetime]:
    """Of a replay all of it: nothing else was replayed."""
    reach = store.minutes_reach()
    return history.stored_span(store) if history.is_stored or reach is None else reach


def _of_rules(
    days: StoredHistory,
    plan: Plan,
    other: Plan | None,
    wanted: Wanted,
    marks: Sequence[Marked],
    progress: Progress,
) -> BacktestReport:
    from driftwatch.backtest.outcome import backtests
    from driftwatch.backtest.report import report_of
    from driftwatch.cli.replay_summary import SilentRules

    silent = SilentRules(plan.enabled)
    progress.begin("judging")
    result, *others = backtests(
        days,
        [plan] if other is None else [plan, other],
        progress=progress,
        each=lambda one: silent.note(one.rows, one.verdicts),
    )
    progress.close()
    return report_of(
        result,
        wanted.severities,
        [*plan.rules, *(() if other is None else other.rules)],
        other=(_heading(wanted.against or Path(), wanted.rules), others[0]) if others else None,
        marks=marks,
        silent=tuple(silent.lines()),
    )


def _other_version(history: History, plan: Plan, wanted: Wanted) -> Plan | None:
    """The plan with the rules that are compared with; None where none are."""
    from driftwatch.rulebook.book import load_rulebook

    if wanted.against is None:
        return None
    book = load_rulebook([wanted.against], configured=history.settings)
    return replace(plan, rules=book.rules, trees=book.trees)


def _heading(version: Path, rules: Sequence[Path]) -> str:
    """The last name of a folder; with its parent's, where the rules' own is the same."""
    path = version.resolve()
    own = {one.resolve().name for one in rules or [Path("rules")]}
    return str(Path(path.parent.name, path.name)) if path.name in own else path.name


def _marks(history: History) -> list[Marked]:
    """What on-call marked, where a database is named or read."""
    from driftwatch.backtest.pages import marked_pages

    if history.db is None and not history.is_stored:
        return []
    with replace(history, recordings=(), prometheus=None).store() as store:
        incidents = store.incidents(limit=1_000_000)
        return marked_pages(incidents, store.marks([one.id for one in incidents]))


@contextmanager
def _how_to_go_on() -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        raise NoVerdict(error.message, help_text=error.help_text) from error
