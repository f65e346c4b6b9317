"""The input of a report: the edge gathers it, and the report asks nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import polars as pl

from driftwatch.incidents.incident import Incident
from driftwatch.model import Slo
from driftwatch.report.cells import no_cells
from driftwatch.report.week import Week
from driftwatch.store.actions import Mark
from driftwatch.store.history import TargetAdvice
from driftwatch.verify.verification import Verification


@dataclass(frozen=True, slots=True)
class Usual:
    """What a pool was tuned for."""

    source: str  # "baseline of 2026-11-10, 48 h" or "tuned_for"
    values: Mapping[str, float]  # column → value


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """Everything of one week."""

    week: Week
    until: datetime  # the report ends before it: the week's end, or now where the week is not over
    cells: pl.DataFrame = field(default_factory=no_cells)  # CELL_SCHEMA, of the week
    span: tuple[datetime, datetime] | None = None  # start of its first row, end of its last
    incidents: Sequence[Incident] = ()  # open in the week or in the week before it; resolved too
    verifications: Sequence[Verification] = ()  # open in some of the eight weeks before ``until``
    advice: Sequence[TargetAdvice] = ()  # of the same eight weeks, in order of time
    usual: Mapping[str, Usual] = field(default_factory=dict)  # pool → what it was tuned for
    # (pool, knob) → the newest restart after which somebody confirmed what runs, and that value
    confirmed: Mapping[tuple[str, str], tuple[datetime, float]] = field(default_factory=dict)
    # (pool, knob) → what driftwatch.yaml says
    configured: Mapping[tuple[str, str], float] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)  # incident's id → mark
    slos: Mapping[str, Slo] = field(default_factory=dict)  # pool → targets; only pools with one
    external_url: str | None = None  # of the web
    options: str = ""  # " --db FILE" where commands need it
    is_sent: bool = True  # some receiver gets pages
    known_since: datetime | None = None  # the oldest that is stored; None = only the week
    knows_last_week: bool = False  # all of the week before is stored

    @property
    def since(self) -> datetime:
        """Start of the week."""
        return self.week.start
