"""``driftwatch baseline export`` and ``import``: the baselines in force as a file, and back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import click

from driftwatch.cli.baseline.place import accept, pins_in_force, subject_of
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.output import print_wrapped, write_file
from driftwatch.clock import SystemClock
from driftwatch.errors import NoVerdict
from driftwatch.notify.numbers import plural

_RECENT = timedelta(minutes=10)


@click.command(name="export")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@history_options("db", "config")
def export_command(file: Path, history: History) -> None:
    """Write the baselines in force to FILE (JSON), for another database or `replay --pins`.

    The same baselines give the same bytes. An existing file is overwritten.
    """
    from driftwatch.baselines.documents import exported

    pins = pins_in_force(history).every
    if not pins:
        raise NoVerdict("there is no baseline to export", help_text="driftwatch baseline propose")
    write_file(file, exported(pins))
    click.echo(f"{file}: {plural(len(pins), 'baseline')}")


@click.command(name="import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@history_options("config", "db")
def import_command(file: Path, history: History) -> int:
    """Put the baselines of FILE in force; each replaces the one of its target or pool.

    driftwatch imports nothing if anything in the file is wrong (exit code 2, every problem at
    once), or if a baseline is of another model, GPU or parallelism than what runs (exit code 1).
    """
    from driftwatch.baselines.documents import read_export
    from driftwatch.baselines.in_force import fingerprint, gpu_models
    from driftwatch.baselines.rows import changes_since
    from driftwatch.detect.baselines import Baselines
    from driftwatch.detect.fingerprints import only
    from driftwatch.pipeline.server_reports import stored_reports
    from driftwatch.pipeline.stored_state import stored_targets

    pins = read_export(file)
    plan = history.plan
    with history.store() as store:
        plan = replace(plan, reported=stored_reports(store))
        targets = plan.assign(stored_targets(store))
        now = SystemClock().now()
        models = gpu_models(targets, plan, store.gpus(now - _RECENT, now))
        ran = {
            key: fingerprint(target, plan, models.get(key.instance, ()))
            for key, target in targets.items()
        }
        wrong: dict[str, str] = {}
        for pin, key, differences in changes_since(Baselines(pins), targets, ran):
            if other := only(differences, "identity"):
                what = ", ".join(one.text for one in other)
                text = f"{pin.id} of {subject_of(pin)} is of another server than {key.text}: {what}"
                wrong.setdefault(pin.id, text)
        if not wrong:
            # accepted by whoever said so; in force from now on
            accept(store, pins, now)
    for text in wrong.values():
        print_wrapped(f"refused: {text}")
    if wrong:
        click.echo("help: nothing was imported; take these baselines out of the file", err=True)
        return EXIT_PROBLEM
    click.echo(f"{plural(len(pins), 'baseline')} in force from {file}")
    return EXIT_ANSWERED
