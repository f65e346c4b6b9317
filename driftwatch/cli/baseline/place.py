"""Where a ``driftwatch baseline`` command takes minutes and pins from, and how it prints times."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from driftwatch.cli.database import config_here, open_store
from driftwatch.cli.options import Progress, plan_from
from driftwatch.cli.past import Api, recorded
from driftwatch.cli.proposal_notice import with_proposals
from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    from driftwatch.baselines.material import Material
    from driftwatch.detect.baselines import Baseline, Baselines
    from driftwatch.pipeline.plan import Plan
    from driftwatch.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, dir_okay=False)
_PLACE = {
    "pins": click.option(
        "--pins",
        type=_FILE,
        metavar="FILE",
        help="An exported file of pins instead of the database.",
    ),
    "db": click.option(
        "--db",
        type=_FILE,
        metavar="FILE",
        help="The database (default: as for driftwatch incidents).",
    ),
    "config": click.option(
        "-c",
        "--config",
        type=_FILE,
        metavar="FILE",
        help="Pools and database of this configuration; default ./driftwatch.yaml, if there.",
    ),
}
_RECORDINGS = click.option(
    "--recording",
    "recordings",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Minutes of a recording instead of the database's; may be given again.",
)


@dataclass(frozen=True, slots=True)
class Place:
    """The options that name pins and minutes; with both, ``-c`` brings pools and ``--db`` data."""

    pins: Path | None = None
    db: Path | None = None
    config: Path | None = None
    recordings: tuple[Path, ...] = ()

    @property
    def plan(self) -> Plan:
        """Pools and settings."""
        return plan_from(self.config if self.config is not None else config_here())

    def store(self) -> Store:
        """The database; it is missing, or does not serve: StoreError."""
        named = (None if path is None else str(path) for path in (self.db, self.config))
        return open_store(*named)

    def pins_in_force(self) -> Baselines:
        """The pins of the file, else of the database.

        Raises ConfigError: the file has problems, or cannot be read; StoreError: the database does
        not serve.
        """
        from driftwatch.baselines.documents import baselines_of_file
        from driftwatch.baselines.rows import baselines_from_store

        if self.pins is not None:
            return baselines_of_file(self.pins)
        with self.store() as store:
            return baselines_from_store(store)

    def pins_of_new_file(self) -> Baselines:
        """The pins of the file; none where it is not named or not there yet."""
        from driftwatch.detect.baselines import Baselines

        exists = self.pins is not None and self.pins.exists()
        return self.pins_in_force() if exists else Baselines()

    def material(self, past: tuple[Api, tuple[datetime, datetime]] | None = None) -> Material:
        """Minutes, targets and pins of an API's past or of recordings, else of the database.

        Raises ConfigError: the configuration or the file of pins has problems; StoreError: the
        database does not serve; NoVerdict: there is no minute yet.
        """
        from driftwatch.baselines.material import material_of_store

        plan = self.plan
        if past is not None:
            with recorded(*past) as folder:
                return self._of_recordings((folder,), plan)
        if self.recordings:
            return self._of_recordings(self.recordings, plan)
        with self.store() as store:
            material = material_of_store(store, plan)
        if material.until is None:
            raise NoVerdict(
                "the database holds no minute yet", help_text="driftwatch run -c driftwatch.yaml"
            )
        return material

    def _of_recordings(self, recordings: tuple[Path, ...], plan: Plan) -> Material:
        from driftwatch.baselines.material import material_of_recording
        from driftwatch.cli.replay import sources_from
        from driftwatch.collect.schema import Recording

        progress = Progress("reading")
        sources = sources_from(recordings, None, progress)
        try:
            spans = [s.span() for s in sources if isinstance(s, Recording)]
            start, end = min(s[0] for s in spans), max(s[1] for s in spans)

            def show(now: datetime) -> None:
                progress((now - start).total_seconds(), (end - start).total_seconds())

            # a slow stretch is no baseline: where there is no pin yet, its own past tells
            proposing = with_proposals(plan)
            pins = self.pins_of_new_file()
            material = material_of_recording(sources, (start, end), proposing, pins, show)
        finally:
            progress.close()
            for source in sources:
                source.close()
        if material.until is None:
            raise NoVerdict("the recording holds no whole minute")
        return material


def place_options(*names: str) -> Callable[[Command], Command]:
    """Those of ``--pins``, ``--db``, ``-c`` and ``--recording`` that are named, as ``place``."""

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def placed(**options: Any) -> Any:
            place = Place(**{name: options.pop(name) for name in names})
            return command(place=place, **options)

        decorated: Any = placed
        for name in reversed(names):
            decorated = (_RECORDINGS if name == "recordings" else _PLACE[name])(decorated)
        return decorated  # type: ignore[no-any-return]

    return add


def pin_named(pins: Baselines, name: str) -> Baseline:
    """The pin whose id begins so, or the one in force of a target or pool.

    Raises UsageError: none or several answer to it.
    """
    matching = [p for p in pins.every if p.id.startswith(name)]
    matching = matching or [p for p in pins.every if name in (subject_of(p), p.instance, p.pool)]
    if len(matching) == 1:
        return matching[0]
    listed = ", ".join(f"{p.id} ({subject_of(p)})" for p in (matching or pins.every)[:8])
    raise UsageError(
        f"{name!r} names {len(matching)} pins" if matching else f"no pin {name!r}",
        help_text=f"one of: {listed}" if listed else "driftwatch baseline propose",
    )


def subject_of(pin: Baseline) -> str:
    """``host:8000``, or the pool's name."""
    from driftwatch.model import TargetKey

    return pin.pool if pin.instance is None else TargetKey(pin.instance, pin.engine or "0").text


def span_text(since: datetime, until: datetime) -> str:
    """``2026-11-13 14:59 to 2026-11-15 14:59 UTC``; the second date only where it is another."""
    last = f"{until:%H:%M}" if since.date() == until.date() else f"{until:%Y-%m-%d %H:%M}"
    return f"{since:%Y-%m-%d %H:%M} to {last} UTC"


def length_text(length: timedelta) -> str:
    """``22 min`` below two hours, else ``47.5 h``."""
    seconds = length.total_seconds()
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def print_wrapped(text: str, indent: str = "  ") -> None:
    """In 80 columns on a terminal; piped as one line."""
    import sys

    from driftwatch.notify.layout import spell, wrap
    from driftwatch.notify.numbers import clean
    from driftwatch.notify.stdout import needs_ascii

    spelled = spell(clean(text), needs_ascii(sys.stdout))
    for line in wrap(spelled, 80, indent) if sys.stdout.isatty() else [spelled]:
        click.echo(line)
