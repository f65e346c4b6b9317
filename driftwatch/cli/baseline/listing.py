"""``driftwatch baseline list``: the pins in force, and the targets without one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.baseline.source import (
    known_from,
    length_text,
    minutes_options,
    pins_in_force,
    said,
    whose,
)
from driftwatch.cli.database import iso_time
from driftwatch.cli.table import lines
from driftwatch.errors import NoVerdict

if TYPE_CHECKING:
    from driftwatch.baselines.candidates import ArmingTarget, Known
    from driftwatch.detect.pins import Pin

# The minutes of so many targets without a pin are looked at; the others are counted.
_LOOKED_AT = 200
HEADER = ("ID", "OF", "FROM UTC", "LENGTH", "BY", "STATE")


@click.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@minutes_options
def command(
    as_json: bool,
    recordings: tuple[Path, ...],
    pins: Path | None,
    db: Path | None,
    config: Path | None,
) -> None:
    """List the pins in force; then the targets without one, with what is missing for it.

    Piped, each line is one pin (id, target or pool, from, to, by, state) or one target (no id);
    tabs between them.
    """
    from driftwatch.baselines.candidates import arming, without_pin
    from driftwatch.baselines.stored_pins import notes_on

    known: Known | None = None
    waiting: list[ArmingTarget] = []
    more = 0
    if pins is None or recordings:
        try:
            known = known_from(recordings, db, config, pins)
        except NoVerdict:
            known = None
    held = pins_in_force(pins, db, config) if known is None else known.pins
    notes: dict[str, str] = {}
    if known is not None:
        lacking = without_pin(known)
        waiting = arming(known, lacking[:_LOOKED_AT])
        more = len(lacking) - len(waiting)
        notes = notes_on(held, known.targets, known.ran)
    if as_json:
        document = {
            "schema_version": 1,
            "pins": [_as_data(pin, notes) for pin in held.pins],
            "arming": [
                {
                    "instance": one.target.key.instance,
                    "engine": one.target.key.engine,
                    "pool": one.target.pool,
                    "lacking": one.lacking,
                    "no_verdict_before": iso_time(one.earliest),
                    "reason": one.text,
                }
                for one in waiting
            ],
            "arming_more": more,
        }
        click.echo(json.dumps(document, sort_keys=True, allow_nan=False))
        return
    _print(held.pins, notes, waiting)
    if more:
        click.echo(f"and {more} targets more without a pin", err=True)


def _print(held: Sequence[Pin], notes: dict[str, str], waiting: list[ArmingTarget]) -> None:
    import sys

    full = [
        (
            pin.id,
            whose(pin),
            iso_time(pin.since) or "",
            iso_time(pin.until) or "",
            pin.accepted_by,
            _state(pin, notes),
        )
        for pin in held
    ]
    if not sys.stdout.isatty():
        rows = [*full, *(("", one.target.key.text, "", "", "", one.text) for one in waiting)]
        for line in lines((), (), rows):
            click.echo(line)
    else:
        short = [
            (
                pin.id,
                whose(pin),
                f"{pin.since:%Y-%m-%d %H:%M}",
                length_text(pin.until - pin.since),
                pin.accepted_by,
                _state(pin, notes),
            )
            for pin in held
        ]
        for line in lines(HEADER if held else (), short, full):
            click.echo(line)
        for one in waiting:
            said(f"{one.target.key.text}  {one.text}")
    if not held:
        click.echo("no pin yet: driftwatch baseline propose", err=True)


def _state(pin: Pin, notes: dict[str, str]) -> str:
    armed = "armed" if pin.law is not None else f"no load model: {pin.arming}"
    return f"{armed}; {notes[pin.id]}" if pin.id in notes else armed


def _as_data(pin: Pin, notes: dict[str, str]) -> dict[str, object]:
    return {
        "id": pin.id,
        "scope": pin.scope,
        "instance": pin.instance,
        "engine": pin.engine,
        "pool": pin.pool,
        "from": iso_time(pin.since),
        "to": iso_time(pin.until),
        "accepted_by": pin.accepted_by,
        "accepted_at": iso_time(pin.accepted_at),
        "why": pin.why,
        "is_armed": pin.law is not None,
        "arming": pin.arming,
        "note": notes.get(pin.id),
    }
