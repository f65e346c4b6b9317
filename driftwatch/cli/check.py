"""``driftwatch check``: configuration and rules; the verdict last."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from driftwatch.cli.main import EXIT_ANSWERED, EXIT_LINT, EXIT_PROBLEM, EXIT_USAGE
from driftwatch.cli.options import PATH, config_option, json_option
from driftwatch.cli.printer import print_json, print_note

if TYPE_CHECKING:
    from driftwatch.errors import Problem
    from driftwatch.settings import Settings

DOCS = "docs/sre/checks.md"
SHIPPED = "no driftwatch.yaml is here, and no file is named: these are the shipped rules"


@click.command("check")
@click.argument("files", nargs=-1, type=PATH, metavar="[FILES...]")
@config_option("Configuration to check, with its rules unless FILES are given.")
@json_option
def command(files: tuple[Path, ...], config: Path | None, as_json: bool) -> int:
    """Check configuration, rules and trees; every problem at once.

    Without arguments, check ./driftwatch.yaml and its rules, else the shipped rules. FILES are
    rules, trees, folders, globs or a configuration. Without a configuration among them, rules may
    use the names of ./driftwatch.yaml. Exit code 0: no problem; 1: problems; 2: a file cannot be
    read; 3: warnings only.
    """
    from driftwatch.rulebook.lint import Checked, check_rulebook

    config, files = _configuration_among(files, config)
    settings, found, names = _configuration(config, is_checked=not files)
    # a configuration that cannot be read at all names no rules
    is_lost = settings is None and bool(names) and not files
    checked = Checked() if is_lost else check_rulebook(files, configured=settings)
    skipped = None if names or settings is None or settings.file is None else settings.file.path
    mine = [one for one in checked.problems if one.path in names]
    problems = sorted([*found, *mine], key=lambda one: (one.line or 0, one.column or 0))
    problems += [one for one in checked.problems if one.path not in (*names, skipped)]
    number = len(names) + len(checked.files)
    if as_json:
        documents = [{**asdict(one), "docs": f"{DOCS}#{one.code}"} for one in problems]
        ok = not any(one.severity == "error" for one in problems)
        counts = {"files": number, "rules": checked.rules or 0}
        print_json({"schema_version": 2, "ok": ok, **counts, "problems": documents})
    else:
        print_problems(problems, number, checked.rules, checked.shipped, checked.off)
    if checked.unchecked:
        click.echo("not checked without a configuration (-c FILE): receivers", err=True)
    return exit_code(problems)


def _configuration_among(
    files: tuple[Path, ...], config: Path | None
) -> tuple[Path | None, tuple[Path, ...]]:
    """The configuration, where --config or a file is one, and the other files."""
    from driftwatch.rulebook.book import kind_of
    from driftwatch.yaml_positions import read_yaml

    if config is None:
        named = (p for p in files if p.is_file() and kind_of(read_yaml(p).root) == "configuration")
        config = next(named, None)
    return config, tuple(path for path in files if path != config)


def print_problems(
    problems: Sequence[Problem],
    files: int,
    rules: int | None = None,
    shipped: tuple[int, int] = (0, 0),
    off: int = 0,
) -> None:
    """Every problem and the verdict on standard output; counts as of ``render_problems``."""
    from driftwatch.rulebook.render import render_problems

    terminal = sys.stdout.isatty()
    text = render_problems(
        problems, files=files, rules=rules, shipped=shipped, off=off, terminal=terminal
    )
    click.echo(text)


def _configuration(
    named: Path | None, *, is_checked: bool
) -> tuple[Settings | None, Sequence[Problem], list[str]]:
    """The settings, their problems, and the file's name where it was checked.

    ``named``: of --config; without it ./driftwatch.yaml, of which problems count only where it
    ``is_checked``.
    """
    from driftwatch.cli.database import config_here
    from driftwatch.errors import ConfigError
    from driftwatch.service.configuration import configured_argument_problems, unmet
    from driftwatch.settings import load_settings

    path = named or config_here()
    if path is None:
        if is_checked:
            print_note(SHIPPED)
        return None, (), []
    wrong: Sequence[Problem] = ()
    try:
        settings: Settings | None = load_settings(path)
    except ConfigError as error:
        settings, wrong = cast("Settings | None", error.readable), error.problems
    if not is_checked and named is None:
        return settings, (), []
    if settings is None:
        return None, wrong, [str(path)]
    more = [*unmet(settings, path), *configured_argument_problems(settings, path)]
    # what the whole file lacks may be what could not be read
    more = [one for one in more if one.line is not None or not wrong]
    return settings, [*wrong, *more], [str(path)]


_NOT_THERE = frozenset({"unreadable", "no-files"})


def exit_code(problems: Sequence[Problem]) -> int:
    """The exit code of the worst problem."""
    errors = [problem for problem in problems if problem.severity == "error"]
    if any(problem.code in _NOT_THERE for problem in errors):
        return EXIT_USAGE
    if errors:
        return EXIT_PROBLEM
    return EXIT_LINT if problems else EXIT_ANSWERED
