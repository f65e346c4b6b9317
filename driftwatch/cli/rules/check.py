"""``driftwatch rules check``: rules and trees, every problem at once, the verdict last."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.main import EXIT_ANSWERED, EXIT_LINT, EXIT_PROBLEM, EXIT_USAGE
from driftwatch.cli.options import print_note
from driftwatch.cli.output import print_json
from driftwatch.cli.rules.arguments import (
    STDIN,
    Manifests,
    arguments_option,
    check_manifests,
    version_of,
    vllm_version_option,
)
from driftwatch.notify.layout import needs_ascii

if TYPE_CHECKING:
    from driftwatch.errors import Problem
    from driftwatch.rulebook.lint import Checked

FORMATS = ("text", "json", "github", "junit")
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
@click.option(
    "--changed-since",
    metavar="COMMIT",
    help="Only problems of rules that differ from the merge base of COMMIT and HEAD.",
)
@arguments_option
@vllm_version_option
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="Default: text.")
def command(
    files: tuple[Path, ...],
    config: Path | None,
    changed_since: str | None,
    arguments: str | None,
    vllm_version: str | None,
    form: str,
) -> int:
    """Check rules, trees and vLLM's arguments; every problem at once.

    FILES are files, folders or globs; without any the configuration's (./driftwatch.yaml, where
    there is one), else the shipped rules. Kubernetes manifests, Helm values and compose files
    among them, and - (standard input), are checked for vLLM's arguments. Exit: 0 no problem,
    1 problems found, 2 a file cannot be read, 3 warnings only.
    """
    from driftwatch.cli.database import config_here
    from driftwatch.clock import SystemClock
    from driftwatch.errors import ConfigError
    from driftwatch.rulebook.lint import check_rulebook
    from driftwatch.rulebook.route_names import unknown_in_routes
    from driftwatch.settings import load_settings

    manifests = check_manifests(files, arguments, version_of(vllm_version))
    lines = manifests.command_lines if manifests.files or arguments is not None else None
    of_manifests = manifests.problems
    if changed_since is not None:
        of_manifests = _of_changed_files(manifests, changed_since)
    if lines is not None and not manifests.rule_files:
        print_problems(
            of_manifests, manifests.files, None, form, changed_since, command_lines=lines
        )
        return exit_code(of_manifests)
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
    today = SystemClock().now().date()
    checked = check_rulebook(paths, configured=settings, today=today)
    problems: Sequence[Problem] = checked.problems
    if changed_since is not None:
        problems = _of_changes(checked, changed_since)
    of_routes: Sequence[Problem] = ()
    if settings is not None and chosen is not None and changed_since is None and not files:
        of_routes = unknown_in_routes(settings, chosen, checked.book.rules)
    problems = [*of_manifests, *of_routes, *problems]
    names = [*manifests.files, *checked.files]
    print_problems(problems, names, checked.rules, form, changed_since, command_lines=lines)
    if checked.unchecked:
        unchecked = ", ".join(checked.unchecked)
        click.echo(f"not checked without a configuration (-c FILE): {unchecked}", err=True)
    return exit_code(problems)


def _of_changed_files(manifests: Manifests, reference: str) -> list[Problem]:
    """The problems of manifests that changed since a commit, and of what is no file.

    All of such a file: one flag may be wrong because of another.
    """
    from driftwatch.cli.rules.changed_lines import changes_since

    files = [Path(path) for path in manifests.files if path != STDIN]
    changes = changes_since(reference, files)
    names = {str(path) for path in files}
    return [
        problem
        for problem in manifests.problems
        if problem.path not in names or changes.touch(replace(problem, line=None), [])
    ]


def _of_changes(checked: Checked, reference: str) -> list[Problem]:
    """The problems of what changed since a commit, and files that cannot be read."""
    from driftwatch.cli.rules.changed_lines import changes_since

    changes = changes_since(reference, [Path(path) for path in checked.files])
    return [
        problem
        for problem in checked.problems
        if problem.code in _NOT_THERE
        or changes.touch(problem, [p for p in checked.parts if p.path == problem.path])
    ]


def print_problems(
    problems: Sequence[Problem],
    files: Sequence[str],
    rules: int | None,
    form: str,
    changed_since: str | None = None,
    *,
    command_lines: int | None = None,
) -> None:
    """Print every problem and the verdict on standard output, in one of the formats.

    ``rules``: how many were read, None = no rule file; ``command_lines``: of vLLM, None = none.
    """
    from driftwatch.cli.rules import problem_formats
    from driftwatch.rulebook.render import render_problems

    if form == "json":
        print_json(problem_formats.json_document(problems, len(files), rules, command_lines))
    elif form == "github":
        for line in problem_formats.github_lines(problems):
            click.echo(line)
    elif form == "junit":
        click.echo(problem_formats.junit_document(problems, files))
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
        click.echo(f"{text}, changed since {changed_since}" if changed_since else text)


_NOT_THERE = frozenset({"unreadable", "no-files"})


def exit_code(problems: Sequence[Problem]) -> int:
    """The worst of what was found."""
    errors = [problem for problem in problems if problem.severity == "error"]
    if any(problem.code in _NOT_THERE for problem in errors):
        return EXIT_USAGE
    if errors:
        return EXIT_PROBLEM
    return EXIT_LINT if problems else EXIT_ANSWERED
