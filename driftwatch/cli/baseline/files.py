"""``driftwatch baseline export`` and ``import``: the pins in force as a file, and back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import click

from driftwatch.cli.baseline.place import Place, place_options, print_wrapped, subject_of
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.clock import SystemClock
from driftwatch.errors import NoVerdict, UsageError

_RECENT = timedelta(minutes=10)


@click.command(name="export")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@place_options("pins", "db", "config")
def export_command(file: Path, place: Place) -> None:
    """Write the pins in force to FILE (JSON), for another database or for --pins.

    The same pins give the same bytes. A file that is there is written over.
    """
    from driftwatch.baselines.documents import exported

    pins = place.pins_in_force().every
    if not pins:
        raise NoVerdict("there is no pin to export", help_text="driftwatch baseline propose")
    try:
        file.write_text(exported(pins), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    click.echo(f"{file}: {len(pins)} pin{'s' if len(pins) > 1 else ''}")


@click.command(name="import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@place_options("config", "db")
def import_command(file: Path, place: Place) -> int:
    """Put the pins of FILE in force; each takes the place of its target's or pool's pin.

    Nothing is imported where anything in the file is wrong (exit code 2, every problem at once),
    or where a pin is of another model, GPU or parallelism than what runs there (exit code 1).
    """
    from driftwatch.baselines.documents import read_export
    from driftwatch.baselines.in_force import fingerprint, gpu_models
    from driftwatch.baselines.rows import of_others, row_of
    from driftwatch.pipeline.server_reports import stored_reports
    from driftwatch.pipeline.stored_state import stored_targets

    pins = read_export(file)
    plan = place.plan
    with place.store() as store:
        plan = replace(plan, reported=stored_reports(store))
        targets = plan.assign(stored_targets(store))
        now = SystemClock().now()
        models = gpu_models(targets, plan, store.gpus(now - _RECENT, now))
        runs = {
            key: (target, fingerprint(target, plan, models.get(key.instance, ())))
            for key, target in targets.items()
        }
        wrong = of_others(pins, runs)
        if not wrong:
            # accepted by whoever said so; in force from now on
            store.add_baselines([row_of(pin) for pin in pins])
    for pin, key, differences in wrong:
        print_wrapped(
            f"refused: {pin.id} of {subject_of(pin)} is of another server than {key}: "
            + ", ".join(one.text for one in differences)
        )
    if wrong:
        click.echo("help: nothing was imported; take these pins out of the file", err=True)
        return EXIT_PROBLEM
    click.echo(f"{len(pins)} pin{'s' if len(pins) != 1 else ''} in force from {file}")
    return EXIT_ANSWERED
