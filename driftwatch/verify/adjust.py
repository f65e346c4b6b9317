"""What still differs within matched cells, taken out: load and lengths of single minutes.

Figures are regressed on what each minute was asked for and moved to the middle of its cell. Both
sides share their slopes, each by how quiet it is; load enters with its square; slopes are shrunk as
if drawn around 0 with a standard deviation of 1. What the curve misses of a cell is the cell's own
level, the same on both sides, believed as far as its minutes tell (DerSimonian and Laird,
Controlled Clinical Trials 7, 1986).

An engine that is slower by f at a load is as at a load higher by f, with every second f times as
long: a time moves by 1 + slope, a count by the slope (no less than 1: Little), a rate by slope - 1,
a share in target by its slope and by the requests that are just inside the target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.verify.figures import FIGURES, SHARES, Parts
from driftwatch.verify.matching import Matched

# Standard deviation that a slope is believed to have before the data.
SLOPE_SD = 1.0
# Nothing is moved by more than a factor of e.
FARTHEST = 1.0
STEEPEST = 10.0
# A slope is worth fitting where there are so many minutes for each (Harrell, "Regression Modeling
# Strategies", 2001, 4.4).
MINUTES_A_SLOPE = 10
# A minute's own mean length counts where so many requests finished in it.
OWN_LENGTHS_FROM = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Adjusted:
    """One side of one figure at the cells' middle.

    ``known``: [minutes] the minute knows the figure.
    """

    parts: Parts
    # [minutes] what its cell is expected to be: the logarithm of it (a share: itself) beside the
    # side's level
    expected: Floats
    # [minutes] what is left of its logarithm (a share: of itself); 0 where unknown
    residual: Floats
    usable: Flags
    # by how much its logarithm (a share: itself) moves with that of the engine's speed
    speed: float
    fitted: float  # degrees of freedom that slopes and cells took of this side


def adjusted(
    matched: Matched, before: Parts, after: Parts, name: str, density: float = 0.0
) -> tuple[Adjusted, Adjusted]:
    """Both sides of a figure, moved to the middle of each cell.

    ``name``: of the figure, in :data:`driftwatch.verify.figures.FIGURES`; ``density``: of a share,
    from :func:`driftwatch.verify.figures.log_densities`.
    """
    cells = len(matched.weights)
    side = np.repeat([0, 1], [len(matched.before_cell), len(matched.after_cell)])
    cell = np.concatenate([matched.before_cell, matched.after_cell])
    covariates = _covariates(matched, side)
    both = _means(covariates, side * cells + cell, 2 * cells)
    middle = (both[:cells] + both[cells:]) / 2
    share = name in SHARES
    top = np.concatenate([before.numerator, after.numerator])
    bottom = np.concatenate([before.denominator, after.denominator])
    usable = (bottom > 0) & (share | (top > 0))
    slopes, levels, residual, fitted = _fit(
        covariates, side, cell, cells, top, bottom, usable, share
    )
    by = np.clip((covariates - middle[cell]) @ slopes, -FARTHEST, FARTHEST)
    moved = np.clip(top - bottom * by, 0.0, bottom) if share else top * np.exp(-by)
    expected = (middle @ slopes + levels)[cell]
    speed = _with_speed(name, float(np.clip(slopes[0], -STEEPEST, STEEPEST)), density)
    one, other = (
        Adjusted(
            Parts(moved[at], bottom[at]),
            expected[at],
            residual[at],
            usable[at],
            speed,
            fitted[number],
        )
        for number, at in enumerate((side == 0, side == 1))
    )
    return one, other


def _covariates(matched: Matched, side: Integers) -> Floats:
    """[minutes, 8] logarithms of loads and lengths, and how a minute's own lengths differ."""
    now, recent = pl.col("requests_per_second").log(), pl.col("recent_requests_per_second").log()
    columns = [now.alias("now"), (recent - now).alias("recent")]
    own = []
    for name in ("prompt_tokens", "generation_tokens"):
        around = pl.col(f"{name}_mean")
        mean = pl.col(f"{name}_sum") / pl.col(f"{name}_count")
        own_lengths = (pl.col(f"{name}_count") >= OWN_LENGTHS_FROM) & (mean > 0)
        columns.append(around.log().alias(name))
        beside = pl.when(own_lengths).then(mean.log() - around.log()).otherwise(0.0)
        own.append(beside.alias(f"{name}_own"))
    columns += own
    sides = [one.select(columns).to_numpy() for one in (matched.before, matched.after)]
    values = np.concatenate(sides).astype(np.float64)
    # each side counts as much as the other: the middle is that of what is compared
    weight = (1.0 / np.bincount(side, minlength=2).clip(min=1))[side]
    values -= np.average(values, axis=0, weights=weight)
    if "requests_per_second" not in matched.by:
        # loads are apart: figures are bounds at their own loads, nothing is carried over
        values[:, :2] = 0.0
    squares = np.stack([values[:, 0] ** 2, (values[:, 0] + values[:, 1]) ** 2], axis=1)
    return np.concatenate([values, squares], axis=1)


def _with_speed(name: str, slope: float, density: float) -> float:
    unit = FIGURES[name].unit
    if name in SHARES:
        return max(-slope, 0.0) + density
    if unit == "seconds":
        return 1.0 + max(slope, 0.0)
    return abs(slope - 1.0) if unit.endswith("/s") else max(slope, 1.0)


def _fit(
    covariates: Floats,
    side: Integers,
    cell: Integers,
    cells: int,
    top: Floats,
    bottom: Floats,
    usable: Flags,
    share: bool,
) -> tuple[Floats, Floats, Floats, list[float]]:
    """Slopes, levels of the cells, residuals, and the degrees of freedom taken of each side."""
    residual, levels = np.zeros(len(cell)), np.zeros(cells)
    if usable.sum() <= 2:
        return np.zeros(covariates.shape[1]), levels, residual, [0.0, 0.0]
    ratio = top[usable] / bottom[usable]
    y = ratio if share else np.log(ratio)
    at, of, weight = side[usable], cell[usable], bottom[usable]
    for number in (0, 1):
        mine = at == number
        weight = np.where(
            mine, weight / max(weight[mine].mean() if mine.any() else 1.0, 1e-12), weight
        )
    x = covariates[usable] - _means(covariates[usable], at, 2, weight)[at]
    y = y - _means(y[:, None], at, 2, weight)[at, 0]
    slopes, trace = _slopes(x, y, weight, at)
    rest = y - x @ slopes
    rest -= _means(rest[:, None], at, 2, weight)[at, 0]
    levels, freedom = _cell_levels(rest, of, cells, weight)
    rest -= levels[of]
    rest -= _means(rest[:, None], at, 2, weight)[at, 0]
    residual[usable] = rest
    counted = np.bincount(of, minlength=cells).clip(min=1)
    fitted = [0.0, 0.0]
    for number in (0, 1):
        mine = at == number
        fitted[number] = trace * mine.sum() / len(mine) + float(
            (freedom[of[mine]] / counted[of[mine]]).sum()
        )
    return slopes, levels, residual, fitted


def _slopes(x: Floats, y: Floats, weight: Floats, at: Integers) -> tuple[Floats, float]:
    """[columns] slopes (ridge), and the degrees of freedom that they took."""
    fitted = min(x.shape[1], len(x) // MINUTES_A_SLOPE)
    x, all_slopes = x[:, :fitted], np.zeros(x.shape[1])
    least = 1e-6 * float((weight * y**2).mean()) + 1e-12
    rest, trace = y, 0.0
    for _ in range(2):  # first with all the variance, then with what the slopes leave
        noise = _means((rest**2)[:, None], at, 2, weight)[:, 0] + least
        sure = weight / noise[at]
        gram, moments = (x * sure[:, None]).T @ x, (x * sure[:, None]).T @ y
        shrunk = gram + np.eye(len(gram)) / SLOPE_SD**2
        slopes = np.asarray(np.linalg.solve(shrunk, moments))
        trace = float(np.trace(np.linalg.solve(shrunk, gram)))
        rest = y - x @ slopes
    all_slopes[:fitted] = slopes
    return all_slopes, trace


def _cell_levels(rest: Floats, of: Integers, cells: int, weight: Floats) -> tuple[Floats, Floats]:
    """[cells] levels of cells, and the share of a degree of freedom that each took."""
    total = np.bincount(of, weights=weight, minlength=cells)
    mean = _means(rest[:, None], of, cells, weight)[:, 0]
    inside = float((weight * (rest - mean[of]) ** 2).sum())
    there = int((total > 0).sum())
    if len(rest) <= there:
        return np.zeros(cells), np.zeros(cells)
    noise = inside / (len(rest) - there)
    spread = float((total * mean**2).sum()) - (there - 1) * noise
    between = max(0.0, spread / max(total.sum() - float((total**2).sum()) / total.sum(), 1e-12))
    if between <= 0 or noise <= 0:
        return np.zeros(cells), np.zeros(cells)
    believed = total * between / (total * between + noise)
    return mean * believed, believed


def _means(values: Floats, group: Integers, groups: int, weight: Floats | None = None) -> Floats:
    """[groups, columns] weighted means; 0 where a group has none."""
    share = np.ones(len(group)) if weight is None else weight
    total = np.bincount(group, weights=share, minlength=groups)
    sums = np.stack(
        [np.bincount(group, weights=share * column, minlength=groups) for column in values.T],
        axis=1,
    )
    result: Floats = sums / np.maximum(total, 1e-12)[:, None]
    return result
