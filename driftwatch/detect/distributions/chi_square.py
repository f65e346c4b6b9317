"""The chi-square test of equal shares, with an effect size beside its p."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from driftwatch.detect.distributions.cells import Floats


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """Pearson's test of a 2 x k table, each [n].

    Attributes:
        statistic: Σ (observed - expected)²/expected.
        degrees: of freedom: cells that hold anything, less one.
        p_value: of equal shares if requests were independent. They are not: bursts and sessions
            make a 10-min window worth 8 to 50 times fewer requests than it counts (detection.md),
            so a small p is no alarm.
        cramers_v: sqrt(statistic / N), 0 to 1: the size of the difference, whatever N.
    """

    statistic: Floats
    degrees: Floats
    p_value: Floats
    cramers_v: Floats


def chi_square(counts: Floats, reference: Floats) -> ChiSquare:
    """Chi-square of counts against a reference's counts, without a continuity correction.

    Args:
        counts: [n, k], requests by cell.
        reference: [n, k] or [1, k].

    Returns:
        NaN where a side holds nothing; statistic 0 and p 1 where all lies in one cell.
    """
    own = counts.sum(axis=1, keepdims=True)
    other = reference.sum(axis=1, keepdims=True)
    together = counts + reference
    total = own + other
    with np.errstate(invalid="ignore", divide="ignore"):
        # of a 2 x k table: both rows' squares over their expected counts, in one fraction
        # own and other are the row totals: Σ (o·other - r·own)² / (own·other·(o + r))
        apart = (counts * other - reference * own) ** 2
        statistic = np.where(together > 0, apart / together, 0.0).sum(axis=1)
        statistic = statistic / (own * other)[:, 0]
        cramers_v = np.sqrt(statistic / total[:, 0])
    degrees = (together > 0).sum(axis=1) - 1.0
    unknown = ~((own > 0) & (other > 0))[:, 0]
    p_value = np.where(degrees > 0, chdtrc(np.maximum(degrees, 1.0), statistic), 1.0)
    for values in (statistic, degrees, p_value, cramers_v):
        values[unknown] = np.nan
    return ChiSquare(statistic, degrees, p_value, np.clip(cramers_v, 0.0, 1.0))
