"""``driftwatch rules test``: what rules say of evidence and recordings."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.check import SHIPPED, print_problems
from driftwatch.cli.history_options import config_option, json_option
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM, EXIT_USAGE
from driftwatch.cli.printer import Progress, print_json, print_note
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.ruletests.coverage import Table
    from driftwatch.ruletests.reader import PlacedTest
    from driftwatch.ruletests.runner import Result, Runner


@click.command("test")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILES...]")
@config_option(
    "Configuration whose rules are tested, with its overrides, by the tests beside them."
)
@click.option("--run", "pattern", metavar="REGEX", help="Run only tests whose name matches.")
@click.option("--verbose", is_flag=True, help="List every test with its time.")
@json_option
@click.option("--coverage", is_flag=True, help="Print which rules, leaves and edges are tested.")
@click.option(
    "--min-coverage",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit 1 where less of the rules, leaves or edges is tested.",
)
def command(
    files: tuple[Path, ...],
    config: Path | None,
    pattern: str | None,
    verbose: bool,
    as_json: bool,
    coverage: bool,
    min_coverage: float | None,
) -> int:
    """Test rules and trees; prints only what differs.

    FILES are test files, folders or globs; without any those in tests/ beside the rules of
    ./driftwatch.yaml, else the shipped ones. A test gives evidence a minute, or a recording,
    and expects alerts, a leaf or line 1 of the page. Exit: 0 all pass, 1 some fail or the coverage
    is low, 2 a test cannot be run.
    """
    from driftwatch.cli.database import config_here
    from driftwatch.ruletests.files import files_of
    from driftwatch.ruletests.reader import read_tests
    from driftwatch.ruletests.runner import Runner
    from driftwatch.settings import load_settings

    place = config or config_here()
    settings = None if place is None else load_settings(place)
    rules = () if settings is None else settings.rules.files
    is_shipped = not files and not rules
    if is_shipped:
        print_note(SHIPPED)
    # the shipped tests say what the shipped thresholds do
    configured = None if is_shipped else settings
    reading = read_tests(files_of(files, rules, place), rules, configured=configured)
    if reading.problems:
        print_problems(reading.problems, reading.files)
        return EXIT_USAGE
    tests = _chosen(reading.tests, pattern)
    runner = Runner(time.monotonic)
    results = _run(tests, runner, verbose=verbose and not as_json, quiet=as_json)
    tables = _tables(runner) if coverage or min_coverage is not None else None
    _print(results, tables if coverage else None, as_json=as_json)
    low = _low(tables or (), min_coverage)
    for text in low:
        click.echo(text, err=as_json)
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


def _run(
    tests: Sequence[PlacedTest], runner: Runner, *, verbose: bool, quiet: bool
) -> list[Result]:
    """Run them; failures are printed as they come."""
    from driftwatch.ruletests.text import failure_lines, passed_line

    progress = Progress("testing")
    results = []
    for number, one in enumerate(tests):
        progress(number, len(tests))
        result = runner.run(one)
        results.append(result)
        lines = [] if quiet else list(failure_lines(result))
        if verbose and result.passed:
            lines.append(passed_line(result))
        for line in lines:
            click.echo(line)
    progress.close()
    return results


def _print(results: Sequence[Result], tables: Sequence[Table] | None, *, as_json: bool) -> None:
    from driftwatch.ruletests.documents import json_document
    from driftwatch.ruletests.text import coverage_lines, verdict

    if as_json:
        print_json(json_document(results, tables))
    else:
        for line in coverage_lines(tables) if tables is not None else ():
            click.echo(line)
        click.echo(verdict(results))


def _tables(runner: Runner) -> Sequence[Table]:
    """The coverage of every rule set that was tested."""
    return [table for book, reached in runner.coverages for table in reached.tables(book)]


def _low(tables: Sequence[Table], least: float | None) -> list[str]:
    if least is None:
        return []
    return [
        f"LOW COVERAGE {one.kind}: {one.percent:.4g} % tested, {least:g} % required; no test: "
        f"{', '.join(one.missing)}"
        for one in tables
        if one.percent < least
    ]
