"""Thresholds from the baseline's windows of like work.

A model's error depends on the kind of work: short generations, idle engines, minutes of prefill.
So a window of six minutes is described by its work. The levels of the baseline's windows with like
work set its threshold (docs/methods/speed.md).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from driftwatch.arrays import Flags, Floats, Indices, Singles
from driftwatch.detect.speed.grid import Grid, median_of_others, quantile, rolling

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

WINDOW, KNOWN = 6, 4  # minutes of a window, and how many of them must be known
LEVEL_QUANTILE = 0.9  # high, so that nearly every minute must be slow
# Windows that a model keeps: 28 kB.
MOST_WINDOWS = 1000
# Windows that set a threshold, and their largest share of a baseline's windows.
NEIGHBOURS, SHARE = 50, 0.25
LOW_QUANTILE, LOW_DEVIATIONS = 0.02, 2.054  # of the normal distribution
DEVIATIONS = 5.0
# Highest thresholds: a loss of 12 %; of 16 % for a baseline that covers less than a day.
FLOOR, YOUNG_FLOOR, YOUNG_MINUTES = float(np.log(0.88)), float(np.log(0.84)), 1380
# With more requests a step than the baseline had, where the model extrapolates: a loss of 15 %
# (decision 107).
BUSY_FLOOR = float(np.log(0.85))
REACH = 1.0  # standard deviations in which a quarter of the neighbours must lie
FOUND_DEVIATIONS = 1.645  # 95 of 100 losses of that size are found
HOUR = 60  # minutes of a server that swing together: an engine wanders for hours

# The kind of a window, as medians of logarithms: name, printed words, smallest value.
# Prompt and first tokens per token belong to the requests: a slow engine does not change them.
KINDS = (
    ("requests", "so many requests a step", 0.01),
    ("prompts", "such a ratio of prompt to generated tokens", 1e-2),
    ("first", "answers of such a length", 1e-3),
    ("queued", "such a wait in the queue", 0.1),
    ("overlap", "such pauses between steps", 1e-2),
)
# The covariates that make them.
INPUTS = ("requests", "prefill", "first", "queued", "overlap")
SET_BY_REQUESTS = np.array([name in ("prompts", "first") for name, _, _ in KINDS], dtype=np.float64)
# A covariate that the baseline holds constant still varies by a third.
LEAST_DEVIATION = 0.35


def kinds_of(values: Grid | Mapping[str, Any]) -> Floats:
    """The kinds of minutes, (..., 5); NaN where unknown. ``values``: by covariate."""
    of = {"prompts": values["prefill"] / np.maximum(values["requests"], 1e-3)}
    of |= {name: values[name] for name, _, _ in KINDS if name not in of}
    return np.stack([np.log(np.maximum(of[name], least)) for name, _, least in KINDS], axis=-1)


def level_of(windows: Floats) -> Floats:
    """Level of windows (..., minute of the window); NaN is unknown."""
    enough = np.isfinite(windows).sum(axis=-1) >= KNOWN
    return np.where(enough, quantile(windows, LEVEL_QUANTILE), np.nan)


def may_be_low(r: Floats, limit: float) -> Flags:
    """Whether the level of the window that ends with a minute may lie at or below a limit: enough
    of its known minutes do.
    """

    def count(flags: Flags) -> Any:
        padded = np.pad(flags.view(np.int8), ((0, 0), (WINDOW - 1, 0)))
        return sum(padded[:, k : k + r.shape[1]] for k in range(WINDOW))

    enough = np.array([int(LEVEL_QUANTILE * max(n - 1, KNOWN - 1)) for n in range(WINDOW + 1)])
    low: Flags = count(r <= limit) > enough[count(np.isfinite(r))]
    return low


def peers_of(grid: Grid, r: Floats) -> Floats:
    """Median of ln r of the pool's other targets in the same minute; NaN with fewer than two."""
    others = np.full(r.shape, np.nan)
    by_size: dict[int, list[Indices]] = {}
    for _, rows in grid.by_pool:
        by_size.setdefault(len(rows), []).append(rows)
    for size, pools in by_size.items():
        if size >= 3:
            others[np.stack(pools)] = median_of_others(r[np.stack(pools)])
    return others


LEVEL, AGAINST = range(2)


@dataclass(eq=False)
class Windows:
    """Windows of a baseline."""

    kinds: Singles  # (window, 5)
    levels: Singles  # (window, 2): level; level against the peers, NaN with too few
    hours: Singles  # (window,): which hour of which server
    # the thresholds of the last call, by kind
    cached: Mapping[bytes, Floats] = field(default_factory=dict, repr=False)

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
        from scipy.spatial import cKDTree  # loaded where it is needed

        return cKDTree(self.kinds @ self.axes)

    @cached_property
    def swing(self) -> float:
        """Standard deviation of the hours' median levels."""
        hours = np.unique(self.hours)
        return float(np.std([np.median(self.levels[self.hours == x, LEVEL]) for x in hours]))

    def document(self) -> str:
        """The windows as text: singles in base 64."""
        rows = np.column_stack([self.kinds, self.levels, self.hours])
        return base64.b64encode(rows.astype("<f4").tobytes()).decode()


def windows_from(document: str) -> Windows:
    """The windows of :meth:`Windows.document`.

    Raises ValueError: it is no such document.
    """
    width = len(KINDS) + 3
    numbers = np.frombuffer(base64.b64decode(document, validate=True), dtype="<f4")
    if len(numbers) % width:
        raise ValueError("windows of like work: the last one is not whole")
    rows = numbers.reshape(-1, width).astype(np.float32)
    kinds, levels, hours = rows[:, : len(KINDS)], rows[:, len(KINDS) : -1], rows[:, -1]
    if not all(np.isfinite(x).all() for x in (kinds, levels[:, LEVEL], hours)):
        raise ValueError("windows of like work: not finite")
    return Windows(kinds, levels, hours)


def windows_of(grid: Grid, r: Floats) -> Windows:
    """The known windows of a baseline, thinned to :data:`MOST_WINDOWS`.

    ``r``: (target, minute), NaN of minutes that do not count.
    """
    level, against = (
        rolling(one, WINDOW, LEVEL_QUANTILE, KNOWN) for one in (r, r - peers_of(grid, r))
    )
    own = np.moveaxis(np.where(np.isfinite(r)[..., None], kinds_of(grid), np.nan), -1, 0)
    kinds = np.stack([rolling(one, WINDOW, 0.5, KNOWN) for one in own], axis=-1)
    of_server = -(-grid.minutes // HOUR)
    hours = np.arange(len(level))[:, None] * of_server + np.arange(grid.minutes) // HOUR
    known = np.isfinite(level) & np.isfinite(kinds).all(axis=-1)
    rows = np.column_stack([x[known] for x in (kinds, level, against, hours)]).astype(np.float32)
    if len(rows) > MOST_WINDOWS:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_WINDOWS).round().astype(np.intp)]
    return Windows(rows[:, : len(KINDS)], rows[:, len(KINDS) : -1], rows[:, -1])


# A baseline's windows, its minutes (a young one does not cover a day), and the numbers of the
# windows that are compared with it.
Groups = Sequence[tuple[Windows, int, Indices]]


def thresholds(groups: Groups, kinds: Floats) -> Floats:
    """The thresholds of windows of these kinds (window, 5), in ln; NaN without like work.

    Returns rows: the limit (at or below it the level is too low); the usual level; the smallest
    loss that is found in 95 of 100 cases, as a share of the speed; limit and usual level against
    the peers; the kind that is furthest from the baseline's, -1 where none is far.
    """
    names = [kind.tobytes() for kind in kinds]
    known: dict[int, Floats] = {}
    for windows, _, rows in groups:
        cached = windows.cached  # most windows were there a minute ago
        known |= {row: cached[names[row]] for row in rows.tolist() if names[row] in cached}
    is_new = np.ones(len(kinds), dtype=bool)
    is_new[list(known)] = False
    number = np.cumsum(is_new) - 1
    new = [(windows, minutes, number[rows[is_new[rows]]]) for windows, minutes, rows in groups]
    found = np.empty((len(kinds), 6))
    found[is_new] = _new_thresholds(new, kinds[is_new])
    if known:
        found[list(known)] = list(known.values())
    for windows, _, rows in groups:
        windows.cached = {names[row]: found[row] for row in rows.tolist()}
    return found.T


def _new_thresholds(groups: Groups, kinds: Floats) -> Floats:
    """The thresholds of windows that are not cached, a row a window."""
    count = len(kinds)
    levels, away = np.full((count, NEIGHBOURS, 2), np.nan), np.zeros(kinds.shape)
    swing = np.zeros(count)
    is_far, is_young, is_busy = np.zeros((3, count), dtype=bool)
    for windows, minutes, rows in groups:
        if len(windows) < 2 * KNOWN or not len(rows):
            continue
        most = min(NEIGHBOURS, max(2 * KNOWN, int(SHARE * len(windows))))
        distance, index = windows.tree.query(kinds[rows] @ windows.axes, k=most)
        levels[rows, :most] = windows.levels[index]
        hours = np.sort(windows.hours[index], axis=1)
        swing[rows] = windows.swing / np.sqrt(1 + (np.diff(hours, axis=1) > 0).sum(axis=1))
        is_young[rows] = minutes < YOUNG_MINUTES
        is_far[rows] = far = distance[:, most // 4] > REACH
        if far.any():
            middle = np.median(windows.kinds[index[far]], axis=1)
            deviation = np.maximum(windows.kinds.std(axis=0), LEAST_DEVIATION)
            away[rows[far]] = np.abs((kinds[rows[far]] - middle) / deviation)
            is_busy[rows[far]] = kinds[rows[far], 0] > middle[:, 0]
    # a slow engine has more requests a step than its baseline ever had, of the same kind
    is_busy &= (away * SET_BY_REQUESTS).max(axis=-1) <= 2 * REACH
    is_unlike = is_far & ~is_busy
    limit, usual, smallest = _limits(levels[..., LEVEL], swing, is_unlike, is_young)
    against, against_usual, _ = _limits(levels[..., AGAINST], swing, is_unlike, is_young)
    for one in (limit, against):
        one[is_busy] = np.minimum(one[is_busy], BUSY_FLOOR)
    smallest[is_busy] = -np.expm1(limit[is_busy])
    has_like = np.isfinite(levels[:, 0, LEVEL])
    # a single server has no level against others: two servers wander √2 as far
    alone = np.isnan(against)
    against = np.where(alone, np.sqrt(2.0) * limit, against)
    against_usual = np.where(alone & has_like, 0.0, against_usual)
    # the kind of requests explains their number, and not the other way round
    away[(away * SET_BY_REQUESTS).max(axis=-1) > 2 * REACH] *= SET_BY_REQUESTS
    unlike = np.where(is_far, away.argmax(axis=-1), -1)
    return np.column_stack([limit, usual, smallest, against, against_usual, unlike])


def _limits(
    near: Singles, swing: Floats, far: Flags, is_young: Flags
) -> tuple[Floats, Floats, Floats]:
    """Limit, usual level and smallest loss of the levels of like windows (window, neighbour).

    ``swing``: standard error of the usual level, whose windows come from a few hours.
    """
    levels: Floats = near.astype(np.float64)
    known = np.isfinite(levels).sum(axis=1)
    middle, low = quantile(levels, 0.5), quantile(levels, LOW_QUANTILE)
    deviation = np.hypot((middle - low) / LOW_DEVIATIONS, swing)
    # a level is a high quantile, so it lies above 0: a young baseline's floor starts from there
    young = np.minimum(YOUNG_FLOOR + np.maximum(middle, 0.0), FLOOR)
    floor = np.where(is_young, young, FLOOR)
    limit = np.minimum(floor, np.minimum(middle, 0.0) - DEVIATIONS * deviation)
    smallest = -np.expm1(np.minimum(limit - middle - FOUND_DEVIATIONS * deviation, 0.0))
    out = far | (known < 2 * KNOWN)
    return (
        np.where(out, np.nan, limit),
        np.where(out, np.nan, middle),
        np.where(out, np.nan, smallest),
    )
