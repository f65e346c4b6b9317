"""Intervals: a percentile bootstrap over whole blocks (Efron & Tibshirani 1993, §8.6, §13.3).

Servers that replay the same traffic on the same day see the same bursts, so days of a draw are
drawn again, not servers or pages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

LEVEL = 0.95
FEWEST_BLOCKS = 10  # below that the tails of a percentile bootstrap mean nothing
RESAMPLES = 2000

Floats = npt.NDArray[np.float64]
Block = TypeVar("Block", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval."""

    value: float | None
    low: float | None = None
    high: float | None = None
    blocks: int = 0
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """For the figures' file."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "blocks": self.blocks,
            "note": self.note or None,
        }


def ratio(
    counts: Mapping[Block, float],
    exposures: Mapping[Block, float],
    *,
    seed: int,
    share: bool = False,
    signed: bool = False,
) -> Estimate:
    """Σ counts / Σ exposures over blocks, for rates and shares.

    Where the counts are all zero, or all of a share, a bootstrap has nothing to vary. Then the
    interval is one-sided: with no block out of n the share of blocks that have one is below
    1 - 0.05^(1/n), taken as one event a block of mean exposure (or a whole block missed).

    Raises:
        ValueError: a block is counted that has no exposure.
    """
    if strange := set(counts) - set(exposures):
        raise ValueError(f"counted outside the exposure: {sorted(map(str, strange))}")
    blocks = sorted(exposures, key=str)
    over = np.array([exposures[b] for b in blocks], dtype=float)
    of = np.array([counts.get(b, 0.0) for b in blocks], dtype=float)
    if not blocks or over.sum() <= 0:
        return Estimate(None, note="nothing to count")
    value = float(of.sum() / over.sum())
    few = _too_few(value, len(blocks))
    if few is not None:
        return few
    at_most = 1 - (1 - LEVEL) ** (1 / len(blocks))
    one_sided = f"one-sided: the same in all {len(blocks)} blocks"
    if not of.any() and not signed:
        high = at_most if share else at_most / float(over.mean())
        return Estimate(value, 0.0, high, len(blocks), one_sided)
    if share and (of == over).all():
        return Estimate(value, 1 - at_most, 1.0, len(blocks), one_sided)
    drawn = np.random.default_rng(seed).integers(len(blocks), size=(RESAMPLES, len(blocks)))
    low, high = np.quantile(of[drawn].sum(1) / over[drawn].sum(1), _tails())
    return Estimate(value, float(low), float(high), len(blocks))


def exact(count: int, of: int) -> Estimate:
    """A share of things that were drawn one by one, with Clopper's and Pearson's interval."""
    if of == 0:
        return Estimate(None, note="nothing to count")
    below, above = _tails()
    low = float(beta.ppf(below, count, of - count + 1)) if count else 0.0
    high = float(beta.ppf(above, count + 1, of - count)) if count < of else 1.0
    return Estimate(count / of, low, high, of, "exact")


def statistic(
    values: Mapping[Block, Sequence[float]],
    of: Callable[[Floats], float],
    *,
    seed: int,
) -> Estimate:
    """Any statistic of values that lie in blocks: a median, a 95th percentile, a mean."""
    held = [np.asarray(values[b], dtype=float) for b in sorted(values, key=str) if len(values[b])]
    if not held:
        return Estimate(None, note="nothing to count")
    value = float(of(np.concatenate(held)))
    few = _too_few(value, len(held))
    if few is not None:
        return few
    draw = np.random.default_rng(seed)
    again = [
        of(np.concatenate([held[i] for i in draw.integers(len(held), size=len(held))]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(again, _tails())
    return Estimate(value, float(low), float(high), len(held))


def _tails() -> tuple[float, float]:
    return (1 - LEVEL) / 2, (1 + LEVEL) / 2


def _too_few(value: float, blocks: int) -> Estimate | None:
    if blocks >= FEWEST_BLOCKS:
        return None
    return Estimate(value, blocks=blocks, note=f"no interval: {blocks} of {FEWEST_BLOCKS} blocks")
