"""``driftwatch check``: configuration and rules, every problem at once, the verdict last."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.history_options import json_option
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_LINT, EXIT_PROBLEM, EXIT_USAGE
from driftwatch.cli.output import print_json
from driftwatch.notify.stdout import needs_ascii

if TYPE_CHECKING:
    from driftwatch.errors import Problem


@click.command("check")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[RULE FILES...]")
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration to check; its rules are checked unless RULE FILES are given.",
)
@json_option
def command(files: tuple[Path, ...], config: Path | None, as_json: bool) -> int:
    """Check configuration and rules, and the files they name; every problem at once.

    Without arguments ./driftwatch.yaml is checked, where there is one. RULE FILES are files,
    folders or globs; without any the configuration's, else the shipped rules. Exit: 0 no problem,
    1 problems found, 2 a file cannot be read, 3 warnings only.
    """
    from driftwatch.cli.database import config_here
    from driftwatch.errors import ConfigError
    from driftwatch.rulebook.book import read_rulebook
    from driftwatch.rulebook.render import render_problems
    from driftwatch.service.needs import unmet
    from driftwatch.settings import Settings, load_settings

    if config is None and not files:
        config = config_here()
    problems: list[Problem] = []
    settings: Settings | None = None
    if config is not None:
        try:
            settings = load_settings(config)
            problems += unmet(settings, config)
        except ConfigError as error:
            problems += error.problems
    paths = files or (settings.rules if settings is not None else ())
    receivers = None if settings is None else [one.name for one in settings.receivers]
    reading = read_rulebook(paths, receivers=receivers)
    problems += reading.problems
    file_count = reading.files + (config is not None)
    if as_json:
        print_json(_document(problems, file_count, reading.rules))
    else:
        text = render_problems(
            problems,
            files=file_count,
            rules=reading.rules,
            ascii_only=needs_ascii(sys.stdout),
        )
        click.echo(text)
    return _exit_code(problems)


_NOT_THERE = frozenset({"unreadable", "no-files"})


def _exit_code(problems: Sequence[Problem]) -> int:
    """The worst of what was found."""
    errors = [problem for problem in problems if problem.severity == "error"]
    if any(problem.code in _NOT_THERE for problem in errors):
        return EXIT_USAGE
    if errors:
        return EXIT_PROBLEM
    return EXIT_LINT if problems else EXIT_ANSWERED


def _document(problems: Sequence[Problem], files: int, rules: int) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "ok": not any(problem.severity == "error" for problem in problems),
        "files": files,
        "rules": rules,
        "problems": [
            {
                "path": problem.path,
                "line": problem.line,
                "column": problem.column,
                "severity": problem.severity,
                "code": problem.code,
                "message": problem.message,
                "help": problem.help_text,
            }
            for problem in problems
        ],
    }
