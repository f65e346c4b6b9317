"""The step-time model: inter-token latency as a function of what a forward pass has to do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator
from scipy.optimize import nnls

from driftwatch.arrays import Flags, Floats
from driftwatch.detect.speed.correction import Correction, correction_of, corrections
from driftwatch.detect.speed.grid import Grid, grid_of
from driftwatch.detect.speed.like_work import Windows, kinds_of, windows_from, windows_of
from driftwatch.detect.speed.load import pass_had, token_met, work_of

# Whatever the scrape interval: counters of a minute are as exact from two scrapes as from twelve
# (docs/methods/speed.md).
MIN_MINUTES = 20
# q95/q05 of requests per forward pass: with less a slope is guessed.
MIN_SPREAD = 1.5
# Beyond the baseline's 99 % quantile a model may be this much too low a doubling of the load.
SLACK_PER_DOUBLING = 0.05
EDGE_QUANTILE, WORK_QUANTILE = 0.99, 0.98
# Huber's weights: 95 % as good as least squares where errors are normal.
ROUNDS, HUBER = 10, 1.345

# A wrong number does not fail, it silences: a model that divides by 0 finds nobody slow.
# Seconds a step, or a step's part of one request or token, may take: an engine has 120 s to answer.
LONGEST_SECONDS = 120.0

_Positive = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class StepTimeModel(BaseModel):
    """ITL = b0 + b1·n + b2·KV + b3·P seconds, of work as a token meets it, with its range."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    # b0 seconds, b1 seconds per request, b2 per KV token, b3 per prefill token
    coefficients: tuple[_Positive, _Positive, _Positive, _Positive]
    # 1 % and 99 % quantile of requests per forward pass in the fit
    requests_range: tuple[_Positive, _Positive]
    scrapes: Annotated[int, Field(ge=0)]  # how many the fit saw
    minutes: Annotated[int, Field(ge=0)]  # different ones
    # 99 % quantile of n, KV and P in the fit: beyond them the model is extrapolated; 0: never seen
    edges: tuple[_Positive | None, _Positive | None, _Positive | None] = (None, None, None)
    # 98 % quantile of passes per second × the model at the mean pass, at least 1: no engine works
    # more than all the time, so what is above 1 is the model's own error
    work_ratio: Annotated[float, Field(ge=1.0, allow_inf_nan=False)] = 1.0
    misfit_ratio: _Positive = 0.0  # robust standard deviation of ln r in the fit
    correction: Correction = Correction()  # of ln r, by the kind of work
    # windows of the fit, to compare like with like: Windows.document
    windows: str = Field(default="", repr=False)

    @field_validator("coefficients")
    @classmethod
    def _check_coefficients(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if sum(value) <= 0:
            raise ValueError("all are 0")
        if max(value) > LONGEST_SECONDS:
            raise ValueError(f"at most {LONGEST_SECONDS:g} s each")
        return value

    @field_validator("requests_range")
    @classmethod
    def _check_range(cls, value: tuple[float, float]) -> tuple[float, float]:
        if value[0] > value[1]:
            raise ValueError("its end is below its beginning")
        return value

    @field_validator("windows")
    @classmethod
    def _check_windows(cls, value: str) -> str:
        if value:
            windows_from(value)
        return value

    @cached_property
    def like_work(self) -> Windows | None:
        """The windows of the fit; None of a model that knows none."""
        return windows_from(self.windows) if self.windows else None


@dataclass(frozen=True, slots=True)
class TooLittle:
    """Why there is no model yet."""

    reason: str  # what is missing: ``15 of 20 minutes of data, load varies by 1.2×, 1.5× needed``
    minutes: int  # usable ones, different ones
    missing_minutes: float = 0.0  # of data
    # when there would be enough at the present pace; None where only other load helps
    earliest: datetime | None = None


def fit(minutes: pl.DataFrame) -> StepTimeModel | TooLittle:
    """The model of minutes (MINUTE_SCHEMA) that somebody accepts as good."""
    work = work_of(minutes)
    if work.is_empty():
        return TooLittle(missing(0, None), 0, float(MIN_MINUTES))
    grid = grid_of(work)
    return fitted(grid, grid.settled)


def fitted(grid: Grid, good: Flags, *, shared: bool = False) -> StepTimeModel | TooLittle:
    """The model of minutes that count as good, with their windows of like work.

    ``good``: (target, minute); those whose load is not known are left out; ``shared``: by a pool.
    """
    good = good & grid.usable
    minutes = int(good.any(axis=0).sum())
    requests = grid["requests"][good].astype(np.float64)
    spread = None
    if len(requests):
        low, high = np.quantile(requests, (0.05, 0.95))
        spread = float(high / low) if low > 0 else None
    if minutes < MIN_MINUTES or (spread or 0.0) < MIN_SPREAD:
        earliest = None
        if 0 < minutes < MIN_MINUTES:  # with enough minutes only another load helps
            earliest = grid.last + timedelta(minutes=MIN_MINUTES - minutes)
        short = float(max(MIN_MINUTES - minutes, 0))
        return TooLittle(missing(minutes, spread, shared=shared), minutes, short, earliest)
    values = {name: grid[name][good].astype(np.float64) for name in grid.values}
    met, itl = token_met(values), values["itl"]
    b = nonnegative_fit(met, itl)
    work = pass_had(values) @ b * values["passes"]
    ratio = max(1.0, float(np.quantile(work, WORK_QUANTILE)))
    low, high = (float(x) for x in np.quantile(requests, (0.01, 0.99)))
    model = StepTimeModel(
        coefficients=_of(b),
        requests_range=(low, high),
        scrapes=int(grid.scrapes[good].sum()),
        minutes=minutes,
        edges=_of(np.quantile(met[:, 1:], EDGE_QUANTILE, axis=0)),
        work_ratio=ratio,
    )
    r = np.where(good, ln_speed(grid, [model] * len(grid.targets)), np.nan)
    known = np.isfinite(r)
    correction = correction_of(kinds_of(grid)[known], r[known])
    model = model.model_copy(update={"correction": correction})
    r = np.where(good, ln_speed(grid, [model] * len(grid.targets)), np.nan)
    misfit = 1.4826 * float(np.median(np.abs(r[known] - np.median(r[known]))))
    return model.model_copy(
        update={"misfit_ratio": misfit, "windows": windows_of(grid, r).document()}
    )


def _of(values: Floats) -> Any:
    return tuple(float(x) for x in values)


def nonnegative_fit(met: Floats, itl: Floats) -> Floats:
    """b ≥ 0 that makes ``1 − met·b / itl`` small: Lawson and Hanson's algorithm on rows that are
    weighted anew in each round (Huber 1964). ``met``: (minute, covariate), the first column 1.
    """
    scale = np.maximum(np.abs(met).max(axis=0), 1e-12)
    rows = met / scale / itl[:, None]
    weights = np.ones(len(itl))
    b = np.zeros(met.shape[1])
    for _ in range(ROUNDS):
        b, _ = nnls(rows * weights[:, None], weights)
        error = 1.0 - rows @ b
        spread = 1.4826 * float(np.median(np.abs(error - np.median(error)))) + 1e-9
        weights = np.sqrt(np.minimum(1.0, HUBER * spread / np.maximum(np.abs(error), 1e-12)))
    unscaled: Floats = b / scale
    return unscaled


def ln_speed(grid: Grid, models: list[StepTimeModel | None]) -> Floats:
    """ln(ITL of the model / ITL measured) of (target, minute); NaN where either is unknown.

    The engine is at least as fast as the arriving work that it finished; a model that is
    extrapolated is given the slack for it. ``models``: of each target.
    """
    none = [math.nan] * 4
    b = np.array([none if x is None else x.coefficients for x in models]).reshape(-1, 1, 4)
    ratio = np.array([1.0 if x is None else x.work_ratio for x in models]).reshape(-1, 1)
    ends = [(None,) * 3 if x is None else x.edges for x in models]
    edges = np.array([[edge or math.inf for edge in one] for one in ends]).reshape(-1, 1, 3)
    values = {name: of.astype(np.float64) for name, of in grid.values.items()}
    met = token_met(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_token = (met * b).sum(axis=-1) / values["itl"]
        by_work = (pass_had(values) * b).sum(axis=-1) * values["passes"] / ratio
        beyond = np.maximum((met[..., 1:] / edges).max(axis=-1), 1.0)
        r = np.log(np.maximum(by_token, by_work)) + np.log1p(SLACK_PER_DOUBLING * np.log2(beyond))
    r = r - corrections([None if x is None else x.correction for x in models], kinds_of(grid))
    return np.where(grid.usable & np.isfinite(r), r, np.nan)


def missing(minutes: int, spread: float | None, *, shared: bool = False) -> str:
    """What a model still needs, in words; ``spread``: of the load; ``shared``: by the pool."""
    data = "of its pool's data" if shared else "of data"
    parts = [f"{minutes} of {MIN_MINUTES} minutes {data}"] if minutes < MIN_MINUTES else []
    if (spread or 0.0) < MIN_SPREAD:
        # rounded down: 1.4998 is short of 1.5, and to be read so
        spread_text = "unknown" if spread is None else f"{math.floor(spread * 100.0) / 100.0:.3g}×"
        parts.append(f"load varies by {spread_text}, {MIN_SPREAD:g}× needed")
    return ", ".join(parts)
