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
    from driftwatch.ruletests.reader import PlacedTest
    from driftwatch.ruletests.results import Result, Runner


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
    from driftwatch.ruletests.reader import files_of, read_tests
    from driftwatch.ruletests.results import Runner, json_document, verdict
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
    runner = Runner(time.monotonic)
    results = _run(_chosen(reading.tests, pattern), runner, verbose=verbose, quiet=as_json)
    tables = runner.tables
    if as_json:
        print_json(json_document(results, tables if coverage else None))
    else:
        lines = [line for table in tables for line in table.lines()]
        for line in [f"{'coverage':23} tested", *lines] if coverage else ():
            click.echo(line)
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


def _run(
    tests: Sequence[PlacedTest], runner: Runner, *, verbose: bool, quiet: bool
) -> list[Result]:
    """Run them; failures are printed as they come, with ``verbose`` what passes too."""
    progress = Progress("testing")
    results = []
    for number, one in enumerate(tests):
        progress(number, len(tests))
        result = runner.run(one)
        results.append(result)
        if quiet:
            continue
        for line in result.lines():
            click.echo(line)
        if verbose and result.passed:
            click.echo(f'ok   {one.path}:{one.line} "{one.test.name}" {result.seconds:.1f} s')
    progress.close()
    return results
