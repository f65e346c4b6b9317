"""Draw lengths from a histogram of a server's /metrics over a window.

Each cell gets its observed share, and the lengths add up exactly to the scraped ``_sum``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Floats, Integers


@dataclass(frozen=True, slots=True, eq=False)
class LengthHistogram:
    """Increase of a histogram of tokens over a window."""

    edges: Floats  # its finite ``le`` edges, rising
    # observations in each cell, (edge before, edge]; one more than edges: +Inf last
    counts: Integers
    total_tokens: float  # increase of its ``_sum``


def _cells(histogram: LengthHistogram, longest: int | None) -> tuple[Integers, Integers]:
    """Smallest and largest whole length of each cell; in a cell without any both are its bound."""
    edges = np.floor(histogram.edges).astype(np.int64)
    low = np.concatenate(([1], edges + 1))
    high = np.append(edges, low[-1] if longest is None else max(longest, low[-1]))
    if longest is not None:
        high = np.minimum(high, np.maximum(longest, low))
    return np.minimum(low, np.maximum(high, 1)), np.maximum(high, 1)


def sample_lengths(
    histogram: LengthHistogram,
    count: int,
    rng: np.random.Generator,
    *,
    longest: int | None = None,
) -> Integers:
    """``count`` lengths with the histogram's shape and, to the nearest token, its mean.

    Cells get their share of ``count``: exactly their counts where as many requests finished; the
    rest is drawn. Lengths are uniform inside a cell. Then all move towards the cells' low or high
    ends until the mean is right, and the last tokens are spread one by one.

    Raises ValueError: the histogram is empty and ``count`` is not 0.
    """
    if not count:
        return np.zeros(0, dtype=np.int64)
    observed = int(histogram.counts.sum())
    if not observed:
        raise ValueError("an empty histogram holds no lengths")
    low, high = _cells(histogram, longest)
    exact = histogram.counts * (count / observed)
    per_cell = np.floor(exact + 1e-9).astype(np.int64)
    rest = count - int(per_cell.sum())
    if rest > 0:
        remainder = np.maximum(exact - per_cell, 0.0)
        # systematic sampling: each cell's expectation is its share
        picks = (rng.random() + np.arange(rest)) / rest * remainder.sum()
        cells = np.searchsorted(np.cumsum(remainder), picks, side="right")
        np.add.at(per_cell, np.minimum(cells, len(per_cell) - 1), 1)
    cell = np.repeat(np.arange(len(per_cell)), per_cell)
    floor, room = low[cell], high[cell] - low[cell]
    target = round(histogram.total_tokens * count / observed)
    target = int(np.clip(target, floor.sum(), (floor + room).sum()))
    lengths: Integers = floor + _bent(rng.random(count), room, target - int(floor.sum()))
    rng.shuffle(lengths)
    return lengths


def _bent(share: Floats, room: Integers, target: int) -> Integers:
    """Whole parts of ``room`` that add up to ``target``: round(room · share^power), power > 0."""
    low, high = -60.0, 60.0
    for _ in range(80):  # the total falls as the power rises
        middle = (low + high) / 2
        total = float((room * share ** np.exp(middle)).sum())
        low, high = (middle, high) if total > target else (low, middle)
    parts: Integers = np.minimum(np.rint(room * share ** np.exp(high)).astype(np.int64), room)
    while (short := target - int(parts.sum())) != 0:
        open_ones = np.flatnonzero(parts < room) if short > 0 else np.flatnonzero(parts > 0)
        some = open_ones[: abs(short)]
        parts[some] += 1 if short > 0 else -1
    return parts
