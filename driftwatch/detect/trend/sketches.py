"""Quantiles of a day's minutes from fixed bins: bounded memory, and sums of sketches are sketches.

Positive values fall into bins that grow by a constant factor, so that a quantile is off by at most
1 % of itself (DDSketch: Masson, Rim & Lee, VLDB 2019, https://arxiv.org/abs/1908.10693, with fixed
bounds). Logarithms of speed fall into bins of equal width, and a quantile is linear inside its bin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftwatch.arrays import Floats, Indices, Integers

Counts = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of equal width on a line."""

    lowest: float  # lower end of the first bin; values below it count in it
    width: float  # of a bin
    count: int  # how many; values above the last count in it
    logarithmic: bool  # values are positive and counted by their logarithm

    def index(self, values: Floats) -> Integers:
        """The bin of each value; -1 for NaN and, where logarithms count, for what is not > 0."""
        with np.errstate(invalid="ignore", divide="ignore"):
            line = np.log(values) if self.logarithmic else values
            known = np.isfinite(line)
        found = np.floor((np.where(known, line, self.lowest) - self.lowest) / self.width)
        inside = np.clip(found, 0, self.count - 1).astype(np.int64)
        return np.where(known, inside, -1)

    def quantile(self, counts: npt.NDArray[np.integer], q: float) -> Floats:
        """The ``q`` quantile of every row of counts.

        ``counts``: [n, count]; ``q``: 0 < q < 1.
        Returns: [n]; NaN where nothing was counted.
        """
        cumulative = np.cumsum(counts, axis=1, dtype=np.float64)
        total = cumulative[:, -1]
        rank = q * total
        cell = np.argmax(cumulative >= rank[:, None], axis=1)
        rows = np.arange(len(counts))
        below = np.where(cell > 0, cumulative[rows, cell - 1], 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (rank - below) / (cumulative[rows, cell] - below)
        line = self.lowest + self.width * (cell + share)
        line[total <= 0] = np.nan
        found: Floats = np.exp(line) if self.logarithmic else line
        return found


_RELATIVE_ERROR = 0.01
_GAMMA_LN = float(np.log((1 + _RELATIVE_ERROR) / (1 - _RELATIVE_ERROR)))

# Requests: from a hundredth (an idle engine's time-weighted batch) to ten thousand.
BATCH = Bins(lowest=float(np.log(0.01)), width=_GAMMA_LN, count=691, logarithmic=True)
# ln of speed at equal load: a third to three times.
LN_SPEED = Bins(lowest=-1.1, width=0.004, count=550, logarithmic=False)


def counted(counts: Counts, rows: Indices, bins: Integers) -> None:
    """Count one more in these bins, in place.

    ``counts``: [n, bins]; ``rows``: which row each value belongs to; ``bins``: from
    :meth:`Bins.index`; -1 counts nowhere.
    """
    known = bins >= 0
    np.add.at(counts, (rows[known], bins[known]), 1)
