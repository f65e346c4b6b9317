"""What still differs within matched cells, taken out: load and lengths of single minutes.

Cells are coarse, and a day's season fills them from other ends before and after. So each side's
figures are regressed on what its minutes were asked for, within cells, and moved to the same point
of each cell. That is what the authors of coarsened exact matching advise to do after it, here with
slopes of its own for each side (Lin, "Agnostic notes on regression adjustments to experimental
data", Annals of Applied Statistics 7, 2013). Few minutes must not move much: slopes are shrunk
towards 0 as if they had been drawn with a standard deviation of 1.

The slope over load also says what an engine that is slower by itself does to a figure: slower by f
at a load is a load higher by f with every second f times as long, so a time moves by 1 + slope, a
count by the slope, a rate by slope - 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.verify.figures import FIGURES, SHARES, Parts
from driftwatch.verify.strata import Matched

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Standard deviation that a slope is believed to have before the data.
SLOPE_SD = 1.0
# Nothing is moved by more than a factor of e.
FARTHEST = 1.0
STEEPEST = 10.0
# A minute's own mean length counts where so many requests finished in it.
OWN_LENGTHS_FROM = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Adjusted:
    """One side's figures at the cells' middle.

    Attributes:
        parts: figure → parts, moved.
        speed: figure → by how much its logarithm (a share: itself) moves with that of the engine's
            speed, in size.
        fitted: figure → degrees of freedom that its slopes took.
    """

    parts: dict[str, Parts]
    speed: dict[str, float]
    fitted: dict[str, float]


def adjusted(
    found: Matched, before: dict[str, Parts], after: dict[str, Parts]
) -> tuple[Adjusted, Adjusted]:
    """Both sides' figures, moved to the middle of each cell.

    Args:
        found: matched minutes.
        before: figures of the first side.
        after: of the second.
    """
    one, other = _asked(found.before), _asked(found.after)
    cells = len(found.weights)
    middle = (_means(one, found.before_cell, cells) + _means(other, found.after_cell, cells)) / 2
    return (
        _side(one, found.before_cell, middle, before),
        _side(other, found.after_cell, middle, after),
    )


def _asked(minutes: pl.DataFrame) -> Floats:
    """[minutes, 6] logarithms of loads and lengths, and how a minute's own lengths differ."""
    now, recent = pl.col("requests_per_second").log(), pl.col("recent_requests_per_second").log()
    columns = [now, (recent - now).alias("recent")]
    for name in ("prompt_tokens", "generation_tokens"):
        around = pl.col(f"{name}_mean")
        own = pl.col(f"{name}_sum") / pl.col(f"{name}_count")
        known = (pl.col(f"{name}_count") >= OWN_LENGTHS_FROM) & (own > 0)
        columns += [
            around.log().alias(name),
            pl.when(known).then(own.log() - around.log()).otherwise(0.0).alias(f"{name}_own"),
        ]
    return minutes.select(columns).to_numpy().astype(np.float64)


def _side(asked: Floats, cell: Ints, middle: Floats, known: dict[str, Parts]) -> Adjusted:
    away = asked - middle[cell]
    moved: dict[str, Parts] = {}
    speed: dict[str, float] = {}
    fitted: dict[str, float] = {}
    for name, one in known.items():
        slopes, fitted[name] = _slopes(asked, cell, len(middle), one, name in SHARES)
        by = np.clip(away @ slopes, -FARTHEST, FARTHEST)
        if name in SHARES:
            told = np.clip(one.numerator - one.denominator * by, 0.0, one.denominator)
        else:
            told = one.numerator * np.exp(-by)
        moved[name] = Parts(told, one.denominator)
        speed[name] = _with_speed(name, float(np.clip(slopes[0], -STEEPEST, STEEPEST)))
    return Adjusted(moved, speed, fitted)


def _with_speed(name: str, slope: float) -> float:
    unit = FIGURES[name].unit
    if name in SHARES:
        return abs(slope)
    if unit == "seconds":
        return abs(1.0 + max(slope, 0.0))
    return abs(slope - 1.0) if unit.endswith("/s") else max(slope, 0.0)


def _slopes(asked: Floats, cell: Ints, cells: int, one: Parts, share: bool) -> tuple[Floats, float]:
    """[6] ridge regression of a figure within cells, each minute by how much it saw.

    And the degrees of freedom that it took: the trace of what maps figures to fitted ones.
    """
    there = (one.denominator > 0) & (share | (one.numerator > 0))
    nothing = np.zeros(asked.shape[1])
    if there.sum() <= 2:
        return nothing, 0.0
    ratio = one.numerator[there] / one.denominator[there]
    y = ratio if share else np.log(ratio)
    weight = one.denominator[there] / one.denominator[there].mean()
    x, at = asked[there], cell[there]
    x = x - _means(x, at, cells, weight)[at]
    y = y - _means(y[:, None], at, cells, weight)[at, 0]
    gram, told = (x * weight[:, None]).T @ x, (x * weight[:, None]).T @ y
    noise = float((weight * y**2).mean())
    slopes, fitted = nothing, 0.0
    for _ in range(2):  # first with all the variance, then with what the slopes leave
        shrunk = gram + np.eye(len(gram)) * (noise / SLOPE_SD**2 + 1e-12)
        slopes = np.linalg.solve(shrunk, told)
        fitted = float(np.trace(np.linalg.solve(shrunk, gram)))
        noise = float((weight * (y - x @ slopes) ** 2).mean())
    return slopes, fitted


def _means(values: Floats, cell: Ints, cells: int, weight: Floats | None = None) -> Floats:
    """[cells, columns] weighted means; 0 where a cell has none."""
    share = np.ones(len(cell)) if weight is None else weight
    total = np.bincount(cell, weights=share, minlength=cells)
    sums = np.stack(
        [np.bincount(cell, weights=share * column, minlength=cells) for column in values.T], axis=1
    )
    result: Floats = sums / np.maximum(total, 1e-12)[:, None]
    return result
