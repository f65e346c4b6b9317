"""Where a ``driftwatch baseline`` command takes minutes and pins from, and how it says times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from driftwatch.cli.database import config_here, open_store
from driftwatch.cli.options import Progress, plan_from
from driftwatch.cli.past import Api, recorded
from driftwatch.cli.proposed import with_proposals
from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    from driftwatch.baselines.candidates import Known
    from driftwatch.detect.pins import Pin, Pins
    from driftwatch.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])


def place_options(command: Command) -> Command:
    """``--pins``, ``--db`` and ``-c``: which pins."""
    for option in (
        click.option(
            "-c",
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Pools and database of this configuration; default ./driftwatch.yaml, if there.",
        ),
        click.option(
            "--db",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="The database (default: as for driftwatch incidents).",
        ),
        click.option(
            "--pins",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="An exported file of pins instead of the database.",
        ),
    ):
        command = option(command)
    return command


def minutes_options(command: Command) -> Command:
    """``--recording``: what the minutes are taken from, with those that say which pins."""
    option: Callable[[Command], Command] = click.option(
        "--recording",
        "recordings",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="FILE",
        help="Minutes of a recording instead of the database's; may be given again.",
    )
    return option(place_options(command))


@contextmanager
def opened(db: Path | None, config: Path | None) -> Iterator[Store]:
    """The database; with both the configuration brings the pools, and ``--db`` the data."""
    with open_store(
        None if db is None else str(db), None if config is None else str(config)
    ) as store:
        yield store


def known_from(
    recordings: tuple[Path, ...],
    db: Path | None,
    config: Path | None,
    pins: Path | None,
    past: tuple[Api, tuple[datetime, datetime]] | None = None,
) -> Known:
    """Minutes, targets and pins of an API's past or of recordings, else of the database.

    Raises:
        ConfigError: the configuration or the file of pins has problems.
        StoreError: the database does not serve.
        NoVerdict: there is no minute yet.
    """
    from driftwatch.baselines.candidates import known_of_store

    chosen = config if config is not None else config_here()
    plan = plan_from(chosen)
    if past is not None:
        with recorded(*past) as folder:
            return _of_recordings((folder,), chosen, pins)
    if recordings:
        return _of_recordings(recordings, chosen, pins)
    with opened(db, config) as store:
        known = known_of_store(store, plan)
    if known.until is None:
        raise NoVerdict(
            "the database holds no minute yet", help_text="driftwatch run -c driftwatch.yaml"
        )
    return known


def _of_recordings(recordings: tuple[Path, ...], config: Path | None, pins: Path | None) -> Known:
    from driftwatch.baselines.candidates import known_of_recording
    from driftwatch.cli.replay import sources_from
    from driftwatch.collect.schema import Recording

    progress = Progress("reading")
    sources = sources_from(recordings, None, progress)
    try:
        spans = [s.span() for s in sources if isinstance(s, Recording)]
        span = (min(s[0] for s in spans), max(s[1] for s in spans))
        whole = (span[1] - span[0]).total_seconds()

        def told(now: datetime) -> None:
            progress((now - span[0]).total_seconds(), whole)

        # a slow stretch is no baseline: where there is no pin yet, its own past tells
        plan = with_proposals(plan_from(config))
        known = known_of_recording(sources, span, plan, pins_of(pins), told)
    finally:
        progress.close()
        for source in sources:
            source.close()
    if known.until is None:
        raise NoVerdict("the recording holds no whole minute")
    return known


def pins_of(path: Path | None) -> Pins:
    """The pins of a file; none where it is not named or not there yet.

    Raises:
        ConfigError: it is there and no export, or some of it is wrong.
    """
    from driftwatch.baselines.documents import pins_of_file
    from driftwatch.detect.pins import Pins

    return pins_of_file(path) if path is not None and path.exists() else Pins()


def pins_in_force(pins: Path | None, db: Path | None, config: Path | None) -> Pins:
    """The pins of a file, else of the database.

    Raises:
        ConfigError: the file has problems, or cannot be read.
        StoreError: the database does not serve.
    """
    from driftwatch.baselines.documents import pins_of_file
    from driftwatch.baselines.stored_pins import pins_from_store

    if pins is not None:
        return pins_of_file(pins)
    with opened(db, config) as store:
        return pins_from_store(store)


def pin_named(pins: Pins, name: str) -> Pin:
    """The pin whose id begins so, or the one in force of a target or pool.

    Raises:
        UsageError: none or several answer to it.
    """
    found = [p for p in pins.pins if p.id.startswith(name)]
    found = found or [p for p in pins.pins if name in (whose(p), p.instance, p.pool)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{p.id} ({whose(p)})" for p in (found or pins.pins)[:8])
    raise UsageError(
        f"{name!r} names {len(found)} pins" if found else f"no pin {name!r}",
        help_text=f"one of: {listed}" if listed else "driftwatch baseline propose",
    )


def whose(pin: Pin) -> str:
    """``host:8000``, or the pool's name."""
    from driftwatch.model import TargetKey

    if pin.instance is None:
        return pin.pool
    return TargetKey(pin.instance, pin.engine or "0").text


def span_text(since: datetime, until: datetime) -> str:
    """``2026-11-13 14:59 to 2026-11-15 14:59 UTC``; the second date only where it is another."""
    last = f"{until:%H:%M}" if since.date() == until.date() else f"{until:%Y-%m-%d %H:%M}"
    return f"{since:%Y-%m-%d %H:%M} to {last} UTC"


def length_text(length: timedelta) -> str:
    """``22 min`` below two hours, else ``47.5 h``."""
    seconds = length.total_seconds()
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def said(text: str, indent: str = "  ") -> None:
    """In 80 columns on a terminal; piped as one line."""
    import sys

    from driftwatch.notify.layout import spell, wrap
    from driftwatch.notify.numbers import clean
    from driftwatch.notify.stdout import needs_ascii

    shown = spell(clean(text), needs_ascii(sys.stdout))
    for line in wrap(shown, 80, indent) if sys.stdout.isatty() else [shown]:
        click.echo(line)
