"""Like work with like work: thresholds from a baseline's own windows that did the same.

A model's error depends on the kind of work: short generations, idle engines, minutes of prefill.
So a window of six minutes is described by its work. The levels of the baseline's windows with like
work set its threshold (docs/methods/speed.md).
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from driftwatch.arrays import Flags, Floats, Indices, Singles
from driftwatch.detect.speed.grid import Grid, of_others, quantile, rolling

WINDOW, KNOWN = 6, 4  # minutes of a window, and how many of them must be known
LEVEL_QUANTILE = 0.9  # high, so that nearly every minute must be slow
# Windows that a model keeps: 28 kB.
MOST_WINDOWS = 1000
# As many of a thousand windows as 200 of every minute's of a day and four servers.
NEIGHBOURS, SHARE = 50, 0.25
LOW_QUANTILE, LOW_DEVIATIONS = 0.02, 2.054  # of the normal distribution
DEVIATIONS = 5.0
# Highest thresholds: a loss of 12 %; of 16 % for a baseline that covers less than a day.
FLOOR, YOUNG_FLOOR, YOUNG_MINUTES = float(np.log(0.88)), float(np.log(0.84)), 1380
# Below it only losses of 30 % and more are found, at three false pages of one pool in a week.
LOWEST = float(np.log(0.7))
REACH = 1.0  # standard deviations in which a quarter of the neighbours must lie
FOUND_DEVIATIONS = 1.645  # 95 of 100

# The kind of a window, as medians of logarithms: name, printed words, smallest value.
# Prompts and first tokens a token belong to the requests: a slow engine does not change them.
KINDS = (
    ("requests", "requests a pass", 0.01),
    ("prompts", "prompt tokens a token", 1e-2),
    ("first", "first tokens a token", 1e-3),
    ("queued", "wait in the queue", 0.1),
    ("overlap", "time between tokens a pass", 1e-2),
)
OF_REQUESTS = np.array([name in ("prompts", "first") for name, _, _ in KINDS], dtype=np.float64)
# A covariate that the baseline holds constant still varies by a third.
LEAST_DEVIATION = 0.35


def kinds_of(grid: Grid) -> Floats:
    """The kind of each minute, (target, minute, 5); NaN where unknown."""
    values: dict[str, Any] = dict(grid.values)
    values["prompts"] = grid["prefill"] / np.maximum(grid["requests"], 1e-3)
    kinds = [np.log(np.maximum(values[name], least)) for name, _, least in KINDS]
    return np.stack(kinds, axis=-1)


def level_of(r: Floats, start: int = 0) -> Floats:
    """Level of the windows that end with each minute from ``start`` on; NaN is unknown."""
    return rolling(r, WINDOW, LEVEL_QUANTILE, KNOWN, start)


def kinds_of_windows(kinds: Floats, r: Floats) -> Floats:
    """The kinds of windows: medians of their known minutes, (target, minute, 5)."""
    known = np.where(np.isfinite(r)[..., None], kinds, np.nan)
    medians = [rolling(one, WINDOW, 0.5, KNOWN) for one in np.moveaxis(known, -1, 0)]
    return np.stack(medians, axis=-1)


def peers_of(grid: Grid, r: Floats) -> Floats:
    """Median of ln r of the pool's other targets in the same minute; NaN with fewer than two."""
    others = np.full(r.shape, np.nan)
    for _, rows in grid.by_pool:
        if len(rows) >= 3:
            others[rows] = of_others(r[rows])
    return others


LEVEL, AGAINST = range(2)
VARIES = len(KINDS)


@dataclass(frozen=True)
class Windows:
    """Windows of a baseline."""

    kinds: Singles  # (window, 5)
    levels: Singles  # (window, 2): level; level against the peers, NaN with too few

    def __len__(self) -> int:
        return len(self.kinds)

    @cached_property
    def axes(self) -> Floats:
        """(5, 5): scales kinds by the baseline's standard deviations in every direction, so that
        values that always went together in it are far once they come apart (Mahalanobis 1936).
        """
        centred = self.kinds.astype(np.float64) - self.kinds.mean(axis=0)
        covariance = centred.T @ centred / max(len(self), 1)
        covariance += LEAST_DEVIATION**2 * np.eye(len(KINDS))
        axes: Floats = np.linalg.inv(np.linalg.cholesky(covariance)).T
        return axes

    @cached_property
    def tree(self) -> cKDTree:
        """The kinds in standard deviations."""
        return cKDTree(self.kinds @ self.axes)

    def document(self) -> str:
        """As text: singles in base 64."""
        rows = np.column_stack([self.kinds, self.levels])
        return base64.b64encode(rows.astype("<f4").tobytes()).decode()


def windows_from(document: str) -> Windows:
    """The windows of :meth:`Windows.document`.

    Raises ValueError: it is no such document.
    """
    width = len(KINDS) + 2
    numbers = np.frombuffer(base64.b64decode(document, validate=True), dtype="<f4")
    if len(numbers) % width:
        raise ValueError("windows of like work: their number is odd")
    rows = numbers.reshape(-1, width).astype(np.float32)
    kinds, levels = rows[:, : len(KINDS)], rows[:, len(KINDS) :]
    if not (np.isfinite(kinds).all() and np.isfinite(levels[:, LEVEL]).all()):
        raise ValueError("windows of like work: not finite")
    return Windows(kinds, levels)


def windows_of(grid: Grid, r: Floats) -> Windows:
    """The known windows of a baseline, thinned to :data:`MOST_WINDOWS`.

    ``r``: (target, minute), NaN of minutes that do not count.
    """
    level, kinds = level_of(r), kinds_of_windows(kinds_of(grid), r)
    levels = np.stack([level, level_of(r - peers_of(grid, r))], axis=-1)
    known = np.isfinite(level) & np.isfinite(kinds).all(axis=-1)
    rows = np.column_stack([kinds[known], levels[known]]).astype(np.float32)
    if len(rows) > MOST_WINDOWS:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_WINDOWS).round().astype(np.intp)]
    return Windows(rows[:, : len(KINDS)], rows[:, len(KINDS) :])


@dataclass(frozen=True, slots=True)
class Thresholds:
    """In ln, one for each window; NaN where like work is missing or varied too much."""

    limit: Floats  # at or below it the level is too low
    usual: Floats  # median level of windows with like work
    smallest: Floats  # the smallest loss found in 95 of 100 cases, as a share of the speed
    against: Floats  # the limit against the peers
    against_usual: Floats
    # the kind that is furthest from the baseline's; VARIES where like work varied too much; else -1
    unlike: Indices

    @classmethod
    def unknown(cls, shape: tuple[int, ...]) -> Thresholds:
        """Nothing but NaN, for windows in this shape."""
        nothing = (np.full(shape, np.nan) for _ in range(5))
        limit, usual, smallest, against, against_usual = nothing
        unlike = np.full(shape, -1, dtype=np.intp)
        return cls(limit, usual, smallest, against, against_usual, unlike)


def thresholds(windows: Windows, kinds: Floats, minutes: int) -> Thresholds:
    """The thresholds of windows of these kinds (window, 5).

    ``minutes``: of the baseline; a young one does not cover a day.
    """
    count = len(windows)
    found = Thresholds.unknown((len(kinds),))
    if count < 2 * KNOWN:
        return found
    most = min(NEIGHBOURS, max(2 * KNOWN, int(SHARE * count)))
    distance, index = windows.tree.query(kinds @ windows.axes, k=most)
    far = distance[:, most // 4] > REACH
    is_young = minutes < YOUNG_MINUTES
    near = windows.levels[index]
    limit, usual, smallest = _limits(near[..., LEVEL], far, is_young=is_young)
    against, against_usual, _ = _limits(near[..., AGAINST], far, is_young=is_young)
    found.unlike[~far & np.isnan(limit)] = VARIES
    # a single server has no level against others: two servers wander √2 as far
    alone = np.isnan(against)
    against = np.where(alone, np.sqrt(2.0) * limit, against)
    against_usual = np.where(alone, 0.0, against_usual)
    if far.any():
        middle = np.median(windows.kinds[index[far]], axis=1)
        deviation = np.maximum(windows.kinds.std(axis=0), LEAST_DEVIATION)
        away = np.abs((kinds[far] - middle) / deviation)
        # the kind of requests explains their number, and not the other way round
        away[(away * OF_REQUESTS).max(axis=-1) > 2 * REACH] *= OF_REQUESTS
        found.unlike[far] = away.argmax(axis=-1)
    return Thresholds(limit, usual, smallest, against, against_usual, found.unlike)


def _limits(near: Singles, far: Flags, *, is_young: bool) -> tuple[Floats, Floats, Floats]:
    """Limit, usual level and smallest loss of the levels of like windows (window, neighbour)."""
    levels: Floats = near.astype(np.float64)
    known = np.isfinite(levels).sum(axis=1)
    middle, low = quantile(levels, 0.5), quantile(levels, LOW_QUANTILE)
    deviation = (middle - low) / LOW_DEVIATIONS
    # a level is a high quantile, so it lies above 0: a young baseline's floor starts from there
    floor = YOUNG_FLOOR + np.maximum(middle, 0.0) if is_young else FLOOR
    limit = np.minimum(floor, np.minimum(middle, 0.0) - DEVIATIONS * deviation)
    smallest = -np.expm1(np.minimum(limit - middle - FOUND_DEVIATIONS * deviation, 0.0))
    out = far | (known < 2 * KNOWN) | (limit < LOWEST)
    return (
        np.where(out, np.nan, limit),
        np.where(out, np.nan, middle),
        np.where(out, np.nan, smallest),
    )
