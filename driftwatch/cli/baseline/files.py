"""``driftwatch baseline export``: the pins in force as a file."""

from __future__ import annotations

from pathlib import Path

import click

from driftwatch.cli.baseline.source import pins_in_force, place_options
from driftwatch.errors import NoVerdict, UsageError


@click.command(name="export")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@place_options
def command(file: Path, pins: Path | None, db: Path | None, config: Path | None) -> None:
    """Write the pins in force to FILE (JSON), for another database or for --pins.

    The same pins give the same bytes. A file that is there is written over.
    """
    from driftwatch.baselines.documents import exported

    found = pins_in_force(pins, db, config).pins
    if not found:
        raise NoVerdict("there is no pin to export", help_text="driftwatch baseline propose")
    try:
        file.write_text(exported(found), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    click.echo(f"{file}: {len(found)} pin{'s' if len(found) > 1 else ''}")
