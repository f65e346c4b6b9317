"""When in its row a request came: evenly, or in bursts such as the counts of the rows allow.

Counts of a minute tell of bursts inside it only by how they differ from minute to minute. Half the
mean squared difference of neighbours, over the mean, is 1 for a Poisson process, whatever its rate
does over longer times (von Neumann's ratio). What is above it came either in bursts shorter than a
minute or in steps that last one or two; minutes cannot tell which. So arrivals are drawn evenly
unless somebody who replays them finds that the queue was longer than that makes it.
"""

from __future__ import annotations

import numpy as np

from driftwatch.recommend.observed.clean import Clean, Floats
from driftwatch.recommend.observed.flows import Flows, Integers

# Bursts are drawn as cells of so many seconds whose rates are gamma distributed and independent:
# on the Azure code trace (Patel et al., ISCA 2024) the dispersion of counts has half of its plateau
# at 5 to 10 s and all of it at 60 s.
CELL_SECONDS = 15.0
# Standard errors of the ratio, sqrt(3 / rows), before it counts as more than chance.
_CERTAIN = 3.0
_LEAST_ROWS = 5


def dispersion(stretch: Clean, counts: Flows) -> float:
    """Variance of the arrivals of a row over their mean, short of slow changes; 1 = Poisson.

    1 as well where there are too few rows to tell, or where it may be chance.
    """
    arrived = counts.arrived.astype(np.float64)
    seconds = np.diff(stretch.edges)
    # rows of one length only: a rate over another time has another variance
    usual = np.abs(seconds - np.median(seconds)) < 0.1 * float(np.median(seconds))
    both = usual[1:] & usual[:-1]
    if int(both.sum()) < _LEAST_ROWS or not arrived[usual].mean() > 0:
        return 1.0
    squares = np.diff(arrived)[both] ** 2
    ratio = float(squares.mean()) / 2 / float(arrived[usual].mean())
    bound = 1.0 + _CERTAIN * float(np.sqrt(3.0 / int(both.sum())))
    return ratio if ratio > bound else 1.0


def arrivals(
    stretch: Clean, counts: Flows, bursts: float, rng: np.random.Generator
) -> tuple[Floats, Integers]:
    """Times of the arrivals, sorted, and the row of each.

    Args:
        stretch: the rows.
        counts: how many came in each.
        bursts: the dispersion that they shall have; 1 = drawn evenly.
        rng: the randomness.
    """
    row = np.repeat(np.arange(len(counts.arrived)), counts.arrived)
    widths = np.diff(stretch.edges)
    if bursts <= 1.0:
        places = rng.random(len(row))
    else:
        places = np.concatenate(
            [
                _in_bursts(int(count), float(width), bursts, rng)
                for count, width in zip(counts.arrived, widths, strict=True)
            ]
        )
    at = stretch.edges[:-1][row] + places * widths[row]
    return np.sort(at), row


def _in_bursts(count: int, width: float, bursts: float, rng: np.random.Generator) -> Floats:
    """Shares of a row's width at which its requests came, by cells of unequal rates.

    Independent gamma rates of variance v over mean² give counts of a row of n requests and k cells
    a variance of n + n² v / k; so v = k (D - 1) / n.
    """
    cells = max(round(width / CELL_SECONDS), 1)
    if count == 0 or cells == 1:
        return rng.random(count)
    shape = count / (cells * (bursts - 1.0))
    weights = rng.gamma(shape, size=cells) + 1e-12
    cell = rng.choice(cells, size=count, p=weights / weights.sum())
    return (cell + rng.random(count)) / cells
