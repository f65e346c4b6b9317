"""``driftwatch rules check``: rules and trees, every problem at once, the verdict last."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.main import EXIT_ANSWERED, EXIT_LINT, EXIT_PROBLEM, EXIT_USAGE
from driftwatch.cli.options import print_note
from driftwatch.cli.output import print_json
from driftwatch.cli.rules.arguments import (
    arguments_option,
    check_manifests,
)
from driftwatch.notify.layout import needs_ascii

if TYPE_CHECKING:
    from driftwatch.errors import Problem

FORMATS = ("text", "json")
DOCS = "docs/sre/checks.md"
SHIPPED = "no driftwatch.yaml is here, and no file is named: these are the shipped rules"


@click.command("check")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILES...]")
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration with the names that rules may use, and its rules unless FILES are there; "
    "default: ./driftwatch.yaml, where there is one.",
)
@arguments_option
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="Default: text.")
def command(
    files: tuple[Path, ...],
    config: Path | None,
    arguments: str | None,
    form: str,
) -> int:
    """Check rules, trees and vLLM's arguments; every problem at once.

    FILES are files, folders or globs; without any the configuration's (./driftwatch.yaml, where
    there is one), else the shipped rules. Kubernetes manifests, Helm values and compose files
    among them, and - (standard input), are checked for vLLM's arguments. Exit: 0 no problem,
    1 problems found, 2 a file cannot be read, 3 warnings only.
    """
    from driftwatch.cli.database import config_here
    from driftwatch.errors import ConfigError
    from driftwatch.rulebook.lint import check_rulebook
    from driftwatch.settings import load_settings

    manifests = check_manifests(files, arguments)
    lines = manifests.command_lines if manifests.files or arguments is not None else None
    if lines is not None and not manifests.rule_files:
        print_problems(manifests.problems, manifests.files, None, form, command_lines=lines)
        return exit_code(manifests.problems)
    chosen = config or config_here()
    if chosen is None and not files:
        print_note(SHIPPED)
    settings = None
    if chosen is not None:
        try:
            settings = load_settings(chosen)
        except ConfigError:
            if config is not None or not files:
                raise  # else the files are checked without it, and the names are named below
    paths = manifests.rule_files or (settings.rules if settings is not None else ())
    checked = check_rulebook(paths, configured=settings)
    problems = [*manifests.problems, *checked.problems]
    names = [*manifests.files, *checked.files]
    print_problems(problems, names, checked.rules, form, command_lines=lines)
    if checked.unchecked:
        unchecked = ", ".join(checked.unchecked)
        click.echo(f"not checked without a configuration (-c FILE): {unchecked}", err=True)
    return exit_code(problems)


def print_problems(
    problems: Sequence[Problem],
    files: Sequence[str],
    rules: int | None,
    form: str,
    *,
    command_lines: int | None = None,
) -> None:
    """Print every problem and the verdict on standard output, as text or JSON.

    ``rules``: how many were read, None = no rule file; ``command_lines``: of vLLM, None = none.
    """
    from driftwatch.rulebook.render import render_problems

    if form == "json":
        print_json(_json_document(problems, len(files), rules, command_lines))
    else:
        ascii_only = needs_ascii(sys.stdout)
        text = render_problems(
            problems,
            files=len(files),
            rules=rules,
            command_lines=command_lines,
            ascii_only=ascii_only,
            terminal=sys.stdout.isatty(),
        )
        click.echo(text)


def _json_document(
    problems: Sequence[Problem], files: int, rules: int | None, command_lines: int | None = None
) -> Mapping[str, Any]:
    """One document; ``docs`` is the heading of a problem's code."""

    return {
        "schema_version": 1,
        "ok": not any(problem.severity == "error" for problem in problems),
        "files": files,
        "rules": rules or 0,
        "command_lines": command_lines or 0,
        "problems": [
            {
                "path": problem.path,
                "line": problem.line,
                "column": problem.column,
                "severity": problem.severity,
                "code": problem.code,
                "message": problem.message,
                "help": problem.help_text,
                "docs": f"{DOCS}#{problem.code}",
            }
            for problem in problems
        ],
    }


_NOT_THERE = frozenset({"unreadable", "no-files"})


def exit_code(problems: Sequence[Problem]) -> int:
    """The worst of what was found."""
    errors = [problem for problem in problems if problem.severity == "error"]
    if any(problem.code in _NOT_THERE for problem in errors):
        return EXIT_USAGE
    if errors:
        return EXIT_PROBLEM
    return EXIT_LINT if problems else EXIT_ANSWERED
