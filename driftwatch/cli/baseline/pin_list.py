"""``driftwatch baseline list``: the baselines in force, or all of one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from driftwatch.cli.baseline.place import material_of, pin_named, pins_in_force, subject_of
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.printer import print_json, print_table, print_wrapped
from driftwatch.cli.proposal_notice import span_text
from driftwatch.errors import NoVerdict
from driftwatch.numbers import duration

if TYPE_CHECKING:
    from driftwatch.baselines.candidates import Material, Waiting
    from driftwatch.detect.baselines import Baseline

# The minutes of so many targets without a pin are read; the others are counted.
_MOST_READ = 200
HEADER = ("ID", "OF", "FROM UTC", "LENGTH", "BY", "STATE")
_PAD = " " * 12


@click.command(name="list")
@click.argument("name", metavar="[ID|TARGET|POOL]", required=False)
@json_option
@history_options("db", "config")
def list_command(name: str | None, as_json: bool, history: History) -> None:
    """List the baselines in force, then the targets without one and what they lack.

    With a name, show that baseline: window, who pinned it and why, what ran, load model, lengths.
    Piped, each line is one baseline (id, target or pool, from, length, by, state) or one target
    (no id); tabs between them.
    """
    from driftwatch.baselines.candidates import waiting_for, without_baseline
    from driftwatch.baselines.documents import notes_on

    if name is not None:
        _show(pin_named(pins_in_force(history), name), as_json)
        return
    material: Material | None = None
    with suppress(NoVerdict):  # no minute yet
        material = material_of(history)
    pins = pins_in_force(history) if material is None else material.baselines
    notes: dict[str, str] = {}
    waiting: list[Waiting] = []
    more = 0
    if material is not None:
        lacking = without_baseline(material)
        waiting = waiting_for(material, lacking[:_MOST_READ])
        more = len(lacking) - len(waiting)
        notes = notes_on(pins, material.targets, material.ran)
    if as_json:
        document = {
            "schema_version": 1,
            "pins": [
                pin.model_dump(mode="json") | {"note": notes.get(pin.id)} for pin in pins.every
            ],
            "arming": [
                {
                    **one.target.key._asdict(),
                    "pool": one.target.pool,
                    "lacking": one.lacking,
                    "no_verdict_before": one.earliest,
                    "reason": one.text,
                }
                for one in waiting
            ],
            "arming_more": more,
        }
        print_json(document)
        return
    _print(pins.every, notes, waiting)
    if more:
        click.echo(f"and {more} targets more without a baseline", err=True)


def _print(pins: Sequence[Baseline], notes: Mapping[str, str], waiting: Sequence[Waiting]) -> None:
    rows = [
        (
            *(pin.id, subject_of(pin), f"{pin.since:%Y-%m-%d %H:%M}", _length(pin)),
            *(pin.accepted_by, _state(pin, notes)),
        )
        for pin in pins
    ]
    if not sys.stdout.isatty():
        rows += [("", one.target.key.text, "", "", "", one.text) for one in waiting]
    print_table(HEADER, rows)
    if sys.stdout.isatty():
        for one in waiting:
            print_wrapped(f"{one.target.key.text}  {one.text}")
    if not pins:
        click.echo("no baseline yet: driftwatch baseline propose", err=True)


def _state(pin: Baseline, notes: Mapping[str, str]) -> str:
    armed = "armed" if pin.load_model is not None else f"no load model: {pin.arming}"
    return f"{armed}; {notes[pin.id]}" if pin.id in notes else armed


def _show(pin: Baseline, as_json: bool) -> None:
    if as_json:
        print_json({"schema_version": 1, "pin": pin.model_dump(mode="json")})
        return
    for label, text in (*_window(pin), *_load_model(pin), *_lengths(pin)):
        print_wrapped(f"{label:10}  {text}", _PAD)


def _window(pin: Baseline) -> Iterator[tuple[str, str]]:
    what = "pool" if pin.scope == "pool" else f"pool {pin.pool}"
    yield "pin", f"{pin.id} of {subject_of(pin)} ({what})"
    yield "window", f"{span_text(pin.since, pin.until)}, {_length(pin)}"
    yield "pinned", f"by {pin.accepted_by} at {pin.accepted_at:%Y-%m-%d %H:%M} UTC"
    yield "why", pin.why or "no reason given"
    for group in ("identity", "knobs", "release"):
        values: Mapping[str, str] = getattr(pin.fingerprint, group)
        yield group, ", ".join(f"{n} {values[n]}" for n in sorted(values)) or "unknown"


def _load_model(pin: Baseline) -> Iterator[tuple[str, str]]:
    model = pin.load_model
    if model is None:
        yield "speed", f"no load model: {pin.arming}"
        return
    low, high = model.requests_range
    b0, b1, b2, *prefill = model.coefficients
    yield (
        "speed",
        f"{1e3 * b0:.3g} ms a step + {1e3 * b1:.3g} ms a request + {1e9 * b2:.3g} ns a KV token "
        f"+ {1e6 * sum(prefill):.3g} µs a prefill token",
    )
    yield (
        "range",
        f"{low:.3g} to {high:.3g} requests a step; {model.scrapes:,} scrapes, "
        f"{model.minutes:,} minutes",
    )
    yield "residual", f"{100 * model.misfit_ratio:.2g} % of a minute's inter-token latency"


def _lengths(pin: Baseline) -> Iterator[tuple[str, str]]:
    row = pin.reference
    if not row:
        yield "lengths", "unknown"
        return
    n = row.get("reference_finished_requests")
    for name in ("prompt_tokens", "generation_tokens"):
        mean, buckets = (row.get(f"reference_{name}_{part}") for part in ("mean", "buckets"))
        if mean is None:
            yield name, "unknown: fewer than 100 finished requests"
            continue
        parts = "with its distribution" if buckets is not None else "mean only"
        yield name, f"mean {mean:,.3g}, n {n:,.0f}, {parts}"


def _length(pin: Baseline) -> str:
    return duration((pin.until - pin.since).total_seconds())
