"""All that a report is made of, gathered by the edge; nothing in here asks anybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import polars as pl

from driftwatch.model import Incident, Slo, TargetKey
from driftwatch.report.cells import no_cells
from driftwatch.report.week import Week
from driftwatch.verify.verification import Verification


@dataclass(frozen=True, slots=True)
class Reference:
    """What a pool was tuned for.

    Attributes:
        pool: its name.
        instance: of a target's own pin; None = of the pool.
        said_by: "pin of 2026-11-10 (48 h)" or "tuned_for".
        values: column → value: ``prompt_tokens_mean``, ``requests_per_forward_pass`` …
    """

    pool: str
    instance: str | None
    said_by: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AdviceGiven:
    """A stored advice, as far as a report reads it.

    Attributes:
        target: who was advised on.
        pool: of it.
        at: end of its window.
        recommendation: :class:`driftwatch.model.Recommendation` as JSON.
        incident_id: whose page carries it; None = nobody's.
    """

    target: TargetKey
    pool: str
    at: datetime
    recommendation: Mapping[str, Any]
    incident_id: str | None = None


@dataclass(frozen=True, slots=True)
class SilencedTime:
    """A silence that held back pages in the week.

    Attributes:
        id: of the silence.
        matchers: in words.
        by: who made it.
        comment: why.
    """

    id: str
    matchers: str
    by: str
    comment: str


@dataclass(frozen=True, slots=True)
class Proposed:
    """A baseline that was proposed and that nobody accepted.

    Attributes:
        id: what accepts it.
        name: of whom.
        since: start of its window.
        until: its end.
    """

    id: str
    name: str
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class RuleSet:
    """What was watched for.

    Attributes:
        sha256: of every rule and tree, in their order; the same rules have the same hash.
        rules: how many are enabled.
        disabled: how many are not.
    """

    sha256: str
    rules: int
    disabled: int


@dataclass(frozen=True, slots=True)
class Marked:
    """What somebody said of an incident's page.

    Attributes:
        useful: it was worth telling somebody.
        by: who said so.
        because: why; empty = not said.
    """

    useful: bool
    by: str
    because: str = ""


@dataclass(frozen=True, slots=True)
class Price:
    """Of one GPU for one hour.

    Attributes:
        amount: above zero.
        currency: as printed.
    """

    amount: float
    currency: str


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """Everything of one week.

    Attributes:
        week: which.
        until: up to when it is told, itself not in it: the week's end, or earlier where it is not
            over.
        cells: :data:`driftwatch.report.cells.CELL_SCHEMA` of the week.
        days: rows of :data:`driftwatch.detect.trend.daily.DAY_SCHEMA`, of the month before
            ``until``; those of the week among them.
        incidents: open in some of the week or of the week before it; resolved ones as well.
        verifications: open in some of the eight weeks before ``until``.
        advice: given in those eight weeks.
        references: pins in force and declared lengths.
        proposed: pins that wait for a person.
        silences: those that held in some of the week.
        marks: incident's id → what was said of its page, then or later; the others are unknown.
        slos: pool → latency targets; only pools that have one.
        derived: pools whose targets nobody configured: twice the pin's p95.
        rules: what was watched for.
        false_episodes_per_server_month: the noise budget.
        price: None = no money is printed.
        minutes_since: from when on minutes were kept; None = from before the week.
    """

    week: Week
    until: datetime
    cells: pl.DataFrame = field(default_factory=no_cells)
    days: pl.DataFrame = field(default_factory=pl.DataFrame)
    incidents: Sequence[Incident] = ()
    verifications: Sequence[Verification] = ()
    advice: Sequence[AdviceGiven] = ()
    references: Sequence[Reference] = ()
    proposed: Sequence[Proposed] = ()
    silences: Sequence[SilencedTime] = ()
    marks: Mapping[str, Marked] = field(default_factory=dict)
    slos: Mapping[str, Slo] = field(default_factory=dict)
    derived: frozenset[str] = frozenset()
    rules: RuleSet = field(default_factory=lambda: RuleSet("", 0, 0))
    false_episodes_per_server_month: float = 0.25
    price: Price | None = None
    minutes_since: datetime | None = None

    @property
    def since(self) -> datetime:
        """Start of the week."""
        return self.week.start
