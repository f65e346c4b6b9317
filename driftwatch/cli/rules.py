"""``driftwatch rules``: test, backtest and export rules."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.check import SHIPPED, print_problems
from driftwatch.cli.history import History
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_LINT, EXIT_PROBLEM, EXIT_USAGE, Group
from driftwatch.cli.options import (
    FILE,
    PATH,
    config_option,
    flag,
    history_options,
    json_option,
    option,
)
from driftwatch.cli.printer import (
    Progress,
    print_json,
    print_note,
    print_table,
    print_wrapped,
    write_file,
)
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.backtest.report import BacktestReport, Marked
    from driftwatch.model import Severity
    from driftwatch.ruletests.reader import PlacedTest
    from driftwatch.ruletests.results import Result, Runner


@click.group(cls=Group)
def command() -> None:
    """Test, backtest and export rules; `driftwatch check` checks them.

    To change a rule, run three commands: `driftwatch check` finds mistakes, test shows that the
    rule does what you mean, backtest lists the pages that it would have sent.
    """


@command.command("test")
@click.argument("files", nargs=-1, type=PATH, metavar="[FILES...]")
@config_option("Configuration: test its rules and overrides, with the tests beside them.")
@option("--run pattern", str, "Run only tests whose name matches.", metavar="REGEX")
@json_option
@flag("--coverage", "Print which rules, leaves and edges are tested.")
@option(
    "--min-coverage",
    click.FloatRange(0, 100),
    "Exit 1 where less of the rules, leaves or edges is tested.",
    metavar="PERCENT",
)
def test_command(
    files: tuple[Path, ...],
    config: Path | None,
    pattern: str | None,
    as_json: bool,
    coverage: bool,
    min_coverage: float | None,
) -> int:
    """Test rules and trees; print only what differs.

    FILES are test files, folders or globs; default: tests/ beside the rules of ./driftwatch.yaml,
    else the shipped tests. A test gives evidence for each minute, or a recording, and expects
    alerts, a leaf or line 1 of the page. Exit code 0: all pass; 1: some fail, or the coverage is
    low; 2: a test cannot be run.
    """
    from driftwatch.cli.database import config_here
    from driftwatch.ruletests.reader import files_of, read_tests
    from driftwatch.ruletests.results import (
        Runner,
        coverage_lines,
        coverage_rows,
        json_document,
        verdict,
    )
    from driftwatch.settings import load_settings

    place = config or config_here()
    settings = None if place is None else load_settings(place)
    rules = () if settings is None else settings.rules.files
    if not files and not rules:
        print_note(SHIPPED)
    reading = read_tests(files_of(files, rules, place), rules, configured=settings)
    if reading.problems:
        print_problems(reading.problems, reading.files)
        return EXIT_USAGE
    runner = Runner(time.monotonic)
    results = _run(_chosen(reading.tests, pattern), runner, quiet=as_json)
    tables = runner.tables
    if as_json:
        print_json(json_document(results, tables if coverage else None))
    else:
        for line in coverage_lines(tables) if coverage else ():
            print_wrapped(line)
        if coverage:
            print_table(*coverage_rows(tables), headed=True)
        click.echo(verdict(results))
    low = [one for one in tables if min_coverage is not None and one.percent < min_coverage]
    for one in low:
        text = f"{one.percent:.4g} % tested, {min_coverage:g} % required"
        missing = ", ".join(one.missing)
        click.echo(f"LOW COVERAGE {one.kind}: {text}; no test: {missing}", err=as_json)
    if any(result.error is not None for result in results):
        return EXIT_USAGE
    return EXIT_PROBLEM if low or not all(result.passed for result in results) else EXIT_ANSWERED


def _chosen(tests: Sequence[PlacedTest], pattern: str | None) -> Sequence[PlacedTest]:
    if pattern is None:
        return tests
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--run {pattern!r} is no regular expression: {error}") from error
    chosen = [one for one in tests if wanted.search(one.test.name)]
    if not chosen:
        raise UsageError(f"--run {pattern!r}: none of {len(tests)} tests has such a name")
    return chosen


def _run(tests: Sequence[PlacedTest], runner: Runner, *, quiet: bool) -> list[Result]:
    """Run them; failures are printed as they come."""
    progress = Progress("testing")
    results = []
    for number, one in enumerate(tests):
        progress(number, len(tests))
        result = runner.run(one)
        results.append(result)
        for line in () if quiet else result.lines():
            click.echo(line)
    progress.close()
    return results


@command.command("backtest")
@click.argument("rules", nargs=-1, type=PATH, metavar="[RULES]...")
@option(
    "--against",
    PATH,
    "Compare with the rules of this folder: of another checkout, or a changed copy.",
    metavar="DIR",
)
@flag("--list with_list", "List every page.")
@flag("--notices", "Count notices too.")
@json_option
@history_options("recordings", "span", "baseline", "db", "pools", "serving")
def backtest_command(
    rules: tuple[Path, ...],
    against: Path | None,
    with_list: bool,
    notices: bool,
    as_json: bool,
    history: History,
) -> None:
    """Count and list the pages that rules would have sent over a history.

    RULES are files, folders or globs; default: the configuration's, else the shipped ones. The
    history is recordings or a database: driftwatch replay --prometheus URL --db FILE makes one of a
    Prometheus. It simulates no advice. Exit code 0: answered; 2: usage or configuration; 4: no
    data.
    """
    from driftwatch.cli.backtest_text import text_lines

    severities: tuple[Severity, ...] = ("page", "ticket", "notice")
    report = _backtest(history, rules, against, severities if notices else severities[:2])
    if as_json:
        print_json(report.document())
    else:
        for line in text_lines(report, with_list=with_list):
            click.echo(line)


def _backtest(
    history: History,
    rules: tuple[Path, ...],
    against: Path | None,
    severities: tuple[Severity, ...],
) -> BacktestReport:
    """The rules over the history, beside those of ``against`` and what on-call marked.

    Raises:
        ConfigError: a rule file or the configuration is wrong.
        NoVerdict: the range holds no data.
        UsageError: options that do not go together.
    """
    from driftwatch.backtest.outcome import NOTE, StoredHistory, backtests
    from driftwatch.backtest.report import report_of
    from driftwatch.cli.replay_summary import with_proposals

    plans = [with_proposals(history.plan_with(rules))]
    if against is not None:
        plans.append(with_proposals(history.plan_with([against])))
    progress = Progress("reading")
    # the rules are judged below: the store needs the evidence alone
    with history.store(plans[0].without_rules()) as store:
        reach = store.minutes_reach()
        span = history.stored_span(store) if history.is_stored or reach is None else reach
        days = StoredHistory(store, span, plans[0])
        if history.is_stored:
            print_note(NOTE)
        progress.begin("judging")
        result, *others = backtests(days, plans, progress=progress)
        progress.close()
    return report_of(
        result,
        severities,
        [rule for plan in plans for rule in plan.rules],
        other=(_heading(against, rules), others[0]) if against is not None else None,
        marks=_marks(history),
    )


def _heading(version: Path, rules: Sequence[Path]) -> str:
    """The last name of a folder; with its parent's, where the rules' own is the same."""
    path = version.resolve()
    own = {one.resolve().name for one in rules or [Path("rules")]}
    return str(Path(path.parent.name, path.name)) if path.name in own else path.name


def _marks(history: History) -> list[Marked]:
    """What on-call marked, where a database is named or read."""
    from driftwatch.backtest.report import marked_pages

    if history.db is None and not history.is_stored:
        return []
    with replace(history, recordings=()).store() as store:
        incidents = store.incidents(limit=1_000_000)
        return marked_pages(incidents, store.marks([one.id for one in incidents]))


@command.command("export")
@click.argument("files", nargs=-1, type=PATH, metavar="[FILES...]")
@option(
    "--to",
    click.Choice(["prometheus", "kubernetes"]),
    "Rule file, or PrometheusRule of the operator.",
    required=True,
)
@option("-o --output out", FILE, "File to write; without it stdout.")
@config_option("Configuration of the driftwatch run whose metrics the alerts read.")
def export_command(files: tuple[Path, ...], to: str, out: Path | None, config: Path | None) -> int:
    """Write rules as alerts over the rule states that driftwatch run serves.

    FILES are rules, folders or globs; default: the configuration's, else the shipped ones. Standard
    error and the top of the file name what differs. Exit code 0: every rule is exported; 2: usage,
    configuration or rules; 3: an annotation of a rule is left out.
    """
    from driftwatch.cli.database import config_here
    from driftwatch.export.alerts import FORMATS, alert_file, alerts_of
    from driftwatch.rulebook.book import load_rulebook
    from driftwatch.settings import load_settings

    config = config or config_here()
    settings = None if config is None else load_settings(config)
    exported = alerts_of(load_rulebook(files, configured=settings).rules)
    name = next(one for one in FORMATS if one == to)
    text, omissions = alert_file(name, exported), exported.omissions
    if out is None:
        click.echo(text, nl=False)
    else:
        write_file(out, text)
    for omission in omissions:
        print_wrapped(omission, "  ", err=True, piped_too=True)
    return EXIT_ANSWERED if exported.is_whole else EXIT_LINT
