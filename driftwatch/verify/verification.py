"""What changed on a server, the verdict on it as a document, and the track record of forecasts."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from driftwatch.documents import Codec
from driftwatch.verify.figures import SHARES

Verdict = Literal["open", "PASS", "FAIL", "INCONCLUSIVE"]
Kind = Literal["knobs", "release"]


@dataclass(frozen=True, slots=True)
class Change:
    """What became different, and when."""

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
    forecast: float | None  # what was promised; None without a promise
    unit: str  # base unit, "1" for ratios


@dataclass(frozen=True, slots=True)
class Verification:
    """A change with its verdict."""

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
    matched_minutes: tuple[int, int] = (0, 0)
    # the advice's forecast that it is held against; None = nobody had advised it
    forecast: Mapping[str, Any] | None = None
    incident_id: str | None = None  # whose page had advised it; None = none
    notes: tuple[str, ...] = ()
    # bucket of the 99th percentile of the time between tokens after; None = unknown, or no upper
    # edge
    itl_p99_cell_seconds: tuple[float, float | None] | None = None


def cell_text(cell: Sequence[float | None]) -> str:
    """``ITL p99 in (25, 50] ms``: the bucket that it lies in; ``above 100 ms`` in the last one."""
    low, high = ((edge or 0.0) * 1000 for edge in cell)
    return (
        f"ITL p99 above {low:.3g} ms"
        if cell[1] is None
        else f"ITL p99 in ({low:.3g}, {high:.3g}] ms"
    )


VERIFICATION = Codec(Verification)


@dataclass(frozen=True, slots=True)
class Missed:
    """One forecast beside what was measured."""

    verification: str
    name: str
    forecast: float
    measured: float
    error: float  # measured / forecast - 1; of a share of requests measured - forecast, in its unit


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """All of them."""

    advised: dict[str, int]  # verdict → how many changes that had been advised
    others: dict[str, int]  # verdict → how many that nobody had advised
    forecasts: tuple[Missed, ...]  # every forecast beside what was measured, in order of time
    # figure → median size of its errors, those of shares in their unit
    median_error: dict[str, float]
    # figure → median of its errors: above 0 where forecasts are too low
    median_signed_error: dict[str, float]


VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE", "open")


def track_record(verifications: Iterable[Verification]) -> TrackRecord:
    """Verdicts and errors of forecasts; ``verifications``: in order of their opening."""
    advised, others = (dict.fromkeys(VERDICTS, 0) for _ in range(2))
    missed: list[Missed] = []
    for verification in verifications:
        (others if verification.forecast is None else advised)[verification.verdict] += 1
        if verification.verdict != "open":
            missed += [
                one
                for e in verification.effects
                if (one := _missed(verification.id, e)) is not None
            ]
    errors: dict[str, list[float]] = {}
    for one in missed:
        errors.setdefault(one.name, []).append(one.error)
    return TrackRecord(
        advised,
        others,
        tuple(missed),
        {name: statistics.median(map(abs, values)) for name, values in errors.items()},
        {name: statistics.median(values) for name, values in errors.items()},
    )


def _missed(verification: str, effect: Effect) -> Missed | None:
    promise = effect.forecast
    if promise is None or (promise <= 0 and effect.name not in SHARES):
        return None
    error = effect.after - promise if effect.name in SHARES else effect.after / promise - 1
    return Missed(verification, effect.name, promise, effect.after, error)
