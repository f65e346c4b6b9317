"""Sums over the minutes up to each minute of a block, always added in the same order.

The order makes a sum the same to the bit however minutes were split over calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftwatch.detect.distributions.cells import Floats

WINDOWS = (10, 20, 60)
MIN_REQUESTS = 100


def running(
    history: npt.NDArray[np.floating], block: int, ends: Sequence[int]
) -> dict[int, Floats]:
    """Sums of the latest so many minutes, at each minute of the block.

    Args:
        history: minutes first, the block's last; at least ``max(ends) - 1`` before the block.
        block: number of its minutes.
        ends: numbers of minutes, rising.

    Returns:
        Number of minutes → sums [block, ...].
    """
    before = len(history) - block
    total = np.zeros((block, *history.shape[1:]))
    found = {}
    for lag in range(ends[-1]):
        total += history[before - lag : before - lag + block]
        if lag + 1 in ends:
            found[lag + 1] = total.copy()
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Latest:
    """What finished in the latest so many minutes, at each minute of a block.

    Attributes:
        counts: number of minutes → cumulative [minutes, units, signals, edges].
        sums: of tokens [minutes, units, signals].
    """

    counts: dict[int, Floats]
    sums: dict[int, Floats]

    @property
    def in_windows(self) -> tuple[dict[int, Floats], dict[int, Floats]]:
        """Of the numbers of minutes that are windows."""
        return {w: self.counts[w] for w in WINDOWS}, {w: self.sums[w] for w in WINDOWS}

    def at(self, minute: int) -> tuple[dict[int, Floats], dict[int, Floats]]:
        """Of one minute of the block."""
        only = slice(minute, minute + 1)
        counts = {w: values[only] for w, values in self.counts.items()}
        return counts, {w: values[only] for w, values in self.sums.items()}


@dataclass(frozen=True, slots=True)
class Window:
    """The shortest window with enough requests, per unit, minute and signal.

    Attributes:
        minutes: its length [block, units, signals]; 0 = even the longest holds too few.
        counts: cumulative [block, units, signals, edges].
        sums: of tokens [block, units, signals].
    """

    minutes: npt.NDArray[np.int64]
    counts: Floats
    sums: Floats

    def at(self, place: int) -> Window:
        """Those of one minute of the block."""
        one = slice(place, place + 1)
        return Window(self.minutes[one], self.counts[one], self.sums[one])

    @property
    def requests(self) -> Floats:
        """Finished requests [block, units, signals]."""
        last: Floats = self.counts[..., -1]
        return last


def shortest(counts: dict[int, Floats], sums: dict[int, Floats]) -> Window:
    """Of the :data:`WINDOWS` the first with :data:`MIN_REQUESTS`; the longest where none has."""
    length = np.full(sums[WINDOWS[0]].shape, 0, dtype=np.int64)
    found, total = counts[WINDOWS[-1]].copy(), sums[WINDOWS[-1]].copy()
    for minutes in reversed(WINDOWS):
        enough = counts[minutes][..., -1] >= MIN_REQUESTS
        length[enough] = minutes
        found[enough] = counts[minutes][enough]
        total[enough] = sums[minutes][enough]
    return Window(length, found, total)


def chosen(by_length: dict[int, Floats], length: npt.NDArray[np.int64], like: Floats) -> Floats:
    """For each place the value of the window of its length; ``like`` where the length is 0."""
    found = like.copy()
    for minutes, values in by_length.items():
        here = length == minutes
        found[here] = values[here]
    return found
