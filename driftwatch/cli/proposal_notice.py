"""Pins on the command line: an exported file, and what is said where driftwatch takes its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from driftwatch.notify.layout import wrap

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.detect.baselines import Baselines
    from driftwatch.pipeline.plan import Plan

Command = TypeVar("Command", bound=Callable[..., Any])

# Measured on real client traffic: pins of 2, 6, 24 and 48 h gave 2.6, 1.9, 0.68 and 0.27 false
# episodes per server-month.
YOUNG = "a pin under 24 h pages 3-10× too often"
_NAMED = 3
_WIDTH = 80
_PROVISIONAL = "provisional"


def pins_option(command: Command) -> Command:
    """``--pins FILE``."""
    option: Callable[[Command], Command] = click.option(
        "--pins",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Pins to compare with, as driftwatch baseline export writes them.",
    )
    return option(command)


def pins_from(path: Path | None) -> Baselines | None:
    """The pins of an export; None where no file is named.

    Raises ConfigError: it is no export, or some of it is wrong.
    """
    if path is None:
        return None
    from driftwatch.baselines.documents import baselines_of_file

    return baselines_of_file(path)


def with_proposals(plan: Plan) -> Plan:
    """The plan that takes a proposed pin where there is none, as nobody is there to accept it."""
    return replace(plan, detection=replace(plan.detection, accepts_proposals=True))


@dataclass(slots=True)
class _Proposal:
    name: str
    since: datetime
    until: datetime | None = None


class TakenProposals:
    """The proposals that were taken without asking, from the evidence rows as they come."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], _Proposal] = {}
        self._told: set[tuple[str, str]] = set()

    def note(self, rows: pl.DataFrame) -> None:
        """See some minutes."""
        import polars as pl

        from driftwatch.model import TargetKey

        if rows.is_empty():
            return
        keys = ["instance", "engine"]
        provisional = pl.col("speed_reference").cast(pl.String).str.contains(_PROVISIONAL)
        start = pl.col("end") - timedelta(minutes=1)
        bounds = rows.group_by(keys, maintain_order=True).agg(
            since=start.filter(pl.col("scrapes") > 0).min(),
            until=start.filter(provisional).min(),
        )
        for instance, engine, since, until in bounds.iter_rows():
            key = (instance, engine)
            if key not in self._found and since is not None:
                self._found[key] = _Proposal(TargetKey(*key).text, since)
            proposal = self._found.get(key)
            if proposal is not None and proposal.until is None and until is not None:
                proposal.until = until

    def lines(self) -> Iterator[str]:
        """One line of those taken since the last call; none where none was."""
        new = [
            (key, p)
            for key, p in sorted(self._found.items())
            if p.until is not None and key not in self._told
        ]
        if not new:
            return
        self._told |= {key for key, _ in new}
        named = ", ".join(_text(p) for _, p in new[:_NAMED])
        more = "" if len(new) <= _NAMED else f" and {len(new) - _NAMED} more"
        yield f"no pin given: driftwatch takes its own proposal, {named}{more}; {YOUNG}"

    def tell(self) -> None:
        """Print :meth:`lines` beside what was asked for."""
        for line in self.lines():
            short = wrap(line, _WIDTH, "  ") if sys.stderr.isatty() else [line]
            for part in short:
                click.echo(part, err=True)


def _text(proposal: _Proposal) -> str:
    """``host:8000 09:32-09:54 UTC (22 min)``."""
    since, until = proposal.since, proposal.until or proposal.since
    length = until - since
    if length < timedelta(hours=2):
        span = f"{length.total_seconds() / 60:.0f} min"
    else:
        span = f"{length.total_seconds() / 3600:.3g} h"
    day = "" if since.date() == until.date() else f"{until:%Y-%m-%d} "
    return f"{proposal.name} {since:%Y-%m-%d %H:%M}-{day}{until:%H:%M} UTC ({span})"
