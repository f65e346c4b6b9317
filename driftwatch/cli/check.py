"""``driftwatch check``: configuration and rules, every problem at once, the verdict last."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history_options import json_option
from driftwatch.cli.rules.check import exit_code, print_problems

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
    from driftwatch.rulebook.lint import check_rulebook
    from driftwatch.service.needs import unmet
    from driftwatch.service.server_arguments import configured_argument_problems
    from driftwatch.settings import Settings, load_settings

    if config is None and not files:
        config = config_here()
    problems: list[Problem] = []
    settings: Settings | None = None
    if config is not None:
        try:
            settings = load_settings(config)
            problems += unmet(settings, config)
            problems += configured_argument_problems(settings, config)
        except ConfigError as error:
            problems += error.problems
    paths = files or (settings.rules if settings is not None else ())
    checked = check_rulebook(paths, configured=settings)
    problems += checked.problems
    names = checked.files if config is None else (str(config), *checked.files)
    print_problems(problems, names, checked.rules, "json" if as_json else "text")
    return exit_code(problems)
