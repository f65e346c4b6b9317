"""``driftwatch rules export``: rules as alerts of Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from driftwatch.cli.main import EXIT_ANSWERED, EXIT_LINT
from driftwatch.cli.output import print_wrapped, write_file


@click.command("export")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[RULE FILES...]")
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
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration of the driftwatch whose metrics the alerts read.",
)
def command(files: tuple[Path, ...], to: str, out: Path | None, config: Path | None) -> int:
    """Write rules as alerts over the target metrics that driftwatch run serves.

    RULE FILES are files, folders or globs; without any the configuration's, else the shipped
    rules. What cannot be exported is named on standard error and at the top of the file. Exit: 0
    everything is exported, 2 usage, or problems of configuration or rules, 3 something was left
    out.
    """
    from driftwatch.cli.database import config_here
    from driftwatch.export.alerts import alerts_of
    from driftwatch.export.files import TO, file_of
    from driftwatch.rulebook.book import load_rulebook
    from driftwatch.rulebook.rules import columns_of
    from driftwatch.service.target_metrics import TARGET_COLUMNS
    from driftwatch.settings import load_settings

    if config is None and not files:
        config = config_here()
    settings = None if config is None else load_settings(config)
    own = load_rulebook(configured=settings).rules
    rules = load_rulebook(files, configured=settings).rules if files else own
    served = None
    if config is not None:
        served = {*TARGET_COLUMNS, *columns_of(rule for rule in own if rule.is_evaluated)}
    name = next(one for one in TO if one == to)
    exported = alerts_of(rules, served=served)
    text, omissions = file_of(name, exported), exported.omissions
    if out is None:
        click.echo(text, nl=False)
    else:
        write_file(out, text)
    for omission in omissions:
        print_wrapped(str(omission), "  ", err=True, piped_too=True)
    return EXIT_LINT if omissions else EXIT_ANSWERED
