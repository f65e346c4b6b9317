"""``driftwatch rules export``: rules as alerts of Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from driftwatch.cli.history_options import config_option
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_LINT
from driftwatch.cli.printer import print_wrapped, write_file


@click.command("export")
@click.option(
    "--to",
    required=True,
    type=click.Choice(["prometheus", "kubernetes"]),
    help="Rule file, or PrometheusRule of the operator.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write it; default: standard output.",
)
@config_option("Configuration of the driftwatch whose metrics the alerts read.")
def command(to: str, out: Path | None, config: Path | None) -> int:
    """Write rules as alerts over the rule states that driftwatch run serves.

    The rules of the configuration, else the shipped ones. What cannot be exported is named on
    standard error and at the top of the file. Exit: 0 everything is exported, 2 usage, or problems
    of configuration or rules, 3 something was left out.
    """
    from driftwatch.cli.database import config_here
    from driftwatch.export.alerts import TO, alerts_of, file_of
    from driftwatch.rulebook.book import load_rulebook
    from driftwatch.settings import load_settings

    config = config or config_here()
    settings = None if config is None else load_settings(config)
    exported = alerts_of(load_rulebook(configured=settings).rules)
    name = next(one for one in TO if one == to)
    text, omissions = file_of(name, exported), exported.omissions
    if out is None:
        click.echo(text, nl=False)
    else:
        write_file(out, text)
    for omission in omissions:
        print_wrapped(str(omission), "  ", err=True, piped_too=True)
    return EXIT_LINT if omissions else EXIT_ANSWERED
