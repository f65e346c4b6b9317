"""A change of a server and the verdict on it, as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from driftwatch.documents import Document
from driftwatch.model import TargetKey

Verdict = Literal["open", "PASS", "FAIL", "INCONCLUSIVE"]
Kind = Literal["knobs", "release"]


@dataclass(frozen=True, slots=True)
class Change:
    """What changed on a server, and when."""

    kind: Kind
    at: datetime
    # name → (before, after) as text, "unknown" and "at least 53" among them
    what: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Effect:
    """One figure at matched traffic."""

    name: str  # evidence column or ``in_target_ratio``
    before: float
    after: float
    low: float
    high: float
    forecast: float | None  # the promised value; None = nothing was promised
    unit: str  # base unit, "1" for ratios


class Verification(Document):
    """A change with its verdict."""

    schema_version: Literal[1] = 1
    id: str
    instance: str
    engine: str
    pool: str
    change: Change
    opened_at: datetime
    closed_at: datetime | None = None  # when the verdict fell; None while open
    verdict: Verdict = "open"
    reason: str = ""
    effects: tuple[Effect, ...] = ()
    # share of the requests compared after the change that missed a latency target; None = no more
    # than the SLO allows, or unknown
    still_missed_ratio: float | None = None
    matched_minutes: tuple[int, int] = (0, 0)
    # least number of further minutes that would settle it; None = settled, or none would
    more_minutes: int | None = None
    # forecast of the advice; None = no advice asked for the change
    forecast: Mapping[str, Any] | None = None
    incident_id: str | None = None  # the incident that advised it; None = none
    notes: tuple[str, ...] = ()
    # who recorded the change (``driftwatch verify --setting``); None = a source shows it
    confirmed_by: str | None = None

    @property
    def key(self) -> TargetKey:
        """The server's key."""
        return TargetKey(self.instance, self.engine)
