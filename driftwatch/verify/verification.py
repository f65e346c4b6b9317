"""What a verification is: a change, two stretches, and what they say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Verdict = Literal["open", "PASS", "FAIL", "INCONCLUSIVE"]
Kind = Literal["knobs", "release", "A/B"]


@dataclass(frozen=True, slots=True)
class Change:
    """What became different, and when.

    Attributes:
        kind: knobs or release changed on one server, or two servers that differ.
        at: end of the minute that showed it.
        what: name → (before, after) as text, "unknown" and "at least 53" among them.
    """

    kind: Kind
    at: datetime
    what: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Effect:
    """One figure at matched traffic.

    Attributes:
        name: evidence column or ``in_target_ratio``.
        before: mean over the matched minutes, each stratum weighed alike.
        after: the same.
        low: 95 % interval of after - before.
        high: the same.
        forecast: what was promised; None without a promise.
        unit: base unit, "1" for ratios.
    """

    name: str
    before: float
    after: float
    low: float
    high: float
    forecast: float | None
    unit: str


@dataclass(frozen=True, slots=True)
class Verification:
    """A change with its verdict.

    Attributes:
        id: stable short id.
        instance: of the target that changed.
        engine: of it.
        pool: of it.
        change: what changed.
        opened_at: when it was noticed.
        closed_at: when the verdict fell; None while open.
        verdict: what came of it.
        reason: one line: what decided, or what is missing.
        effects: at matched traffic.
        matched_minutes: before, after.
        forecast: the advice's forecast that it is held against; None = nobody had advised it.
        incident_id: whose page had advised it; None = none.
        against: instance/engine of the other server of an A/B; None else.
    """

    id: str
    instance: str
    engine: str
    pool: str
    change: Change
    opened_at: datetime
    closed_at: datetime | None = None
    verdict: Verdict = "open"
    reason: str = ""
    effects: tuple[Effect, ...] = ()
    matched_minutes: tuple[int, int] = (0, 0)
    forecast: Mapping[str, Any] | None = None
    incident_id: str | None = None
    against: str | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)
