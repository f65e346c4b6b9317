"""``driftwatch baseline import``: pins of a file into the database, all or none."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import click

from driftwatch.cli.baseline.source import opened, said, whose
from driftwatch.cli.database import config_here
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.options import plan_from
from driftwatch.clock import SystemClock

_RECENT = timedelta(minutes=10)


@click.command(name="import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Pools and database of this configuration; default ./driftwatch.yaml, if there.",
)
@click.option(
    "--db",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The database (default: as for driftwatch incidents).",
)
def command(file: Path, config: Path | None, db: Path | None) -> int:
    """Put the pins of FILE in force; each takes the place of its target's or pool's pin.

    Nothing is imported where anything in the file is wrong (exit code 2, every problem at once),
    or where a pin is of another model, GPU or parallelism than what runs there (exit code 1).
    """
    from driftwatch.baselines.documents import read_export
    from driftwatch.baselines.pinned import fingerprint, gpu_models
    from driftwatch.baselines.stored_pins import of_others, row_of
    from driftwatch.pipeline.server_reports import stored_reports
    from driftwatch.pipeline.stored import stored_targets

    found = read_export(file)
    chosen = config if config is not None else config_here()
    plan = plan_from(chosen)
    with opened(db, config) as store:
        plan = replace(plan, told=stored_reports(store))
        targets = plan.assign(stored_targets(store))
        now = SystemClock().now()
        models = gpu_models(targets, plan, store.gpus(now - _RECENT, now))
        runs = {
            key: (target, fingerprint(target, plan, models.get(key.instance, ())))
            for key, target in targets.items()
        }
        wrong = of_others(found, runs)
        if not wrong:
            # accepted by whoever said so; in force from now on
            store.add_baselines([row_of(pin) for pin in found])
    for pin, key, what in wrong:
        said(
            f"refused: {pin.id} of {whose(pin)} is of another server than {key}: "
            + ", ".join(one.text for one in what)
        )
    if wrong:
        click.echo("help: nothing was imported; take these pins out of the file", err=True)
        return EXIT_PROBLEM
    click.echo(f"{len(found)} pin{'s' if len(found) != 1 else ''} in force from {file}")
    return EXIT_ANSWERED
