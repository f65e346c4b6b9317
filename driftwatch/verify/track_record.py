"""What came of what was advised: verdicts counted, and how far forecasts were off."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from driftwatch.verify.figures import SHARES
from driftwatch.verify.verification import Effect, Verification


@dataclass(frozen=True, slots=True)
class Missed:
    """One forecast beside what was measured.

    Attributes:
        verification: id of it.
        name: the figure.
        forecast: what was promised.
        measured: at matched traffic.
        error: measured / forecast - 1; of a share of requests measured - forecast, in its unit.
    """

    verification: str
    name: str
    forecast: float
    measured: float
    error: float


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """All of them.

    Attributes:
        advised: verdict → how many changes that had been advised.
        others: verdict → how many that nobody had advised.
        missed: every forecast beside what was measured, in order of time.
        median_error: figure → median size of its errors, those of shares in their unit.
        median_signed_error: figure → median of its errors: above 0 where forecasts are too low.
    """

    advised: dict[str, int]
    others: dict[str, int]
    missed: tuple[Missed, ...]
    median_error: dict[str, float]
    median_signed_error: dict[str, float]


VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE", "open")


def track_record(verifications: Iterable[Verification]) -> TrackRecord:
    """Verdicts and errors of forecasts.

    Args:
        verifications: in order of their opening; an A/B is no change and is left out.
    """
    advised, others = (dict.fromkeys(VERDICTS, 0) for _ in range(2))
    missed: list[Missed] = []
    for found in verifications:
        if found.change.kind == "A/B":
            continue
        (others if found.forecast is None else advised)[found.verdict] += 1
        if found.verdict != "open":
            missed += [one for e in found.effects if (one := _missed(found.id, e)) is not None]
    errors: dict[str, list[float]] = {}
    for one in missed:
        errors.setdefault(one.name, []).append(one.error)
    return TrackRecord(
        advised,
        others,
        tuple(missed),
        {name: statistics.median(map(abs, found)) for name, found in errors.items()},
        {name: statistics.median(found) for name, found in errors.items()},
    )


def _missed(verification: str, effect: Effect) -> Missed | None:
    promise = effect.forecast
    if promise is None or (promise <= 0 and effect.name not in SHARES):
        return None
    error = effect.after - promise if effect.name in SHARES else effect.after / promise - 1
    return Missed(verification, effect.name, promise, effect.after, error)
