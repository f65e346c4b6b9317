"""``driftwatch baseline show``: all that one pin remembers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.baseline.source import (
    length_text,
    pin_named,
    pins_in_force,
    place_options,
    said,
    span_text,
    whose,
)

if TYPE_CHECKING:
    from driftwatch.detect.pins import Pin

_PAD = " " * 12
_GROUPS = ("identity", "knobs", "release")


@click.command(name="show")
@click.argument("name", metavar="ID|TARGET|POOL")
@click.option("--json", "as_json", is_flag=True, help="The pin as JSON, as an export holds it.")
@place_options
def command(
    name: str, as_json: bool, pins: Path | None, db: Path | None, config: Path | None
) -> None:
    """Show one pin: its window, who pinned it and why, what ran, its load model and lengths."""
    from driftwatch.baselines.documents import document_of

    pin = pin_named(pins_in_force(pins, db, config), name)
    if as_json:
        document = {"schema_version": 1, "pin": document_of(pin)}
        click.echo(json.dumps(document, sort_keys=True, allow_nan=False))
        return
    for label, text in _told(pin):
        said(f"{label:10}  {text}" if label else text, _PAD)


def _told(pin: Pin) -> Iterator[tuple[str, str]]:
    what = "pool" if pin.scope == "pool" else f"pool {pin.pool}"
    yield "pin", f"{pin.id} of {whose(pin)} ({what})"
    yield "window", f"{span_text(pin.since, pin.until)}, {length_text(pin.until - pin.since)}"
    yield "pinned", f"by {pin.accepted_by} at {pin.accepted_at:%Y-%m-%d %H:%M} UTC"
    yield "why", pin.why or "nobody said"
    for group in _GROUPS:
        known: Mapping[str, str] = getattr(pin.fingerprint, group)
        yield group, ", ".join(f"{n} {known[n]}" for n in sorted(known)) or "unknown"
    yield from _law(pin)
    yield from _lengths(pin)


def _law(pin: Pin) -> Iterator[tuple[str, str]]:
    law = pin.law
    if law is None:
        yield "speed", f"no load model: {pin.arming}"
        return
    low, high = law.requests_range
    b0, b1, b2, b3 = law.coefficients
    yield (
        "speed",
        f"{1e3 * b0:.3g} ms a pass + {1e3 * b1:.3g} ms a request + {1e9 * b2:.3g} ns a KV token "
        f"+ {1e6 * b3:.3g} µs a prefill token",
    )
    yield (
        "range",
        f"{low:.3g} to {high:.3g} requests a pass; {law.scrapes:,} scrapes, "
        f"{law.minutes:,} minutes",
    )
    yield "residual", f"{100 * law.misfit_ratio:.2g} % of a minute's inter-token latency"


def _lengths(pin: Pin) -> Iterator[tuple[str, str]]:
    if pin.reference.is_empty():
        yield "lengths", "not remembered"
        return
    row = pin.reference.row(0, named=True)
    n = row["reference_finished_requests"]
    for name in ("prompt_tokens", "generation_tokens"):
        mean, buckets = row[f"reference_{name}_mean"], row[f"reference_{name}_buckets"]
        if mean is None:
            yield name, "unknown: fewer than 100 finished requests"
            continue
        kept = "with its distribution" if buckets is not None else "mean only"
        yield name, f"mean {mean:,.3g}, n {n:,.0f}, {kept}"
