"""The load model: inter-token latency as a function of the work of a forward pass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, field_validator

from driftwatch.arrays import Flags, Floats
from driftwatch.detect.speed.grid import Grid, grid_of
from driftwatch.detect.speed.like_work import Windows, windows_from, windows_of
from driftwatch.detect.speed.load import COVARIATES, PREEMPTING, token_met, work_of

# At any scrape interval: two scrapes give a minute's counters as exactly as twelve
# (docs/methods/speed.md).
MIN_MINUTES = 20
# Huber's weights: 95 % as good as least squares where errors are normal.
ROUNDS, HUBER = 10, 1.345

# Largest coefficient: an engine answers in 120 s. A wrong number would raise no error but silence a
# rule: a model that divides by 0 finds no server slow.
LONGEST_SECONDS = 120.0

_Positive = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class StepTimeModel(BaseModel):
    """ITL = b0 + b1·n + b2·KV + b3·P + b4·P' seconds, of work as a token meets it."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    # b0 seconds, b1 seconds per request, b2 per KV token, b3 and b4 per prefill token
    coefficients: tuple[_Positive, _Positive, _Positive, _Positive, _Positive]
    scrapes: Annotated[int, Field(ge=0)]  # of the fit
    minutes: Annotated[int, Field(ge=0)]  # of the fit, distinct
    preempts: bool = False  # most minutes of the fit preempt, so preempting minutes count
    misfit_ratio: _Positive = 0.0  # robust standard deviation of ln r in the fit
    # windows of the fit, to compare like with like: Windows.document
    hourly_windows: str = Field(default="", repr=False)

    @field_validator("coefficients")
    @classmethod
    def _check_coefficients(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if sum(value) <= 0:
            raise ValueError("all are 0")
        if max(value) > LONGEST_SECONDS:
            raise ValueError(f"at most {LONGEST_SECONDS:g} s each")
        return value

    @field_validator("hourly_windows")
    @classmethod
    def _check_windows(cls, value: str) -> str:
        if value:
            windows_from(value)
        return value

    @cached_property
    def like_work(self) -> Windows | None:
        """The windows of the fit; None if the model has none."""
        return windows_from(self.hourly_windows) if self.hourly_windows else None


@dataclass(frozen=True, slots=True)
class TooFewMinutes:
    """Why there is no model yet."""

    reason: str  # what is missing: ``15 of 20 minutes of data``
    minutes: int  # usable ones, distinct
    # when there will be enough at the present pace; None without any minute
    earliest: datetime | None = None


def fit(minutes: pl.DataFrame) -> StepTimeModel | TooFewMinutes:
    """The model of minutes (MINUTE_SCHEMA) of a baseline."""
    work = work_of(minutes)
    if work.is_empty():
        return TooFewMinutes(missing(0), 0)
    grid = grid_of(work)
    return fitted(grid, grid.settled)


def fitted(grid: Grid, good: Flags) -> StepTimeModel | TooFewMinutes:
    """The model of minutes that count as good, with their windows of like work.

    ``good``: (target, minute); minutes of unknown load are left out.
    """
    usable, preempting = good & grid.usable, good & (grid.why == PREEMPTING)
    preempts = bool(preempting.sum() > usable.sum())
    good = usable | preempting if preempts else usable
    minutes = int(good.any(axis=0).sum())
    if minutes < MIN_MINUTES:
        earliest = grid.last + timedelta(minutes=MIN_MINUTES - minutes) if minutes else None
        return TooFewMinutes(missing(minutes), minutes, earliest)
    values = {name: grid[name][good].astype(np.float64) for name in COVARIATES}
    met, itl = np.stack(token_met(values), axis=-1), values["itl"]
    b = nonnegative_fit(met, itl)
    model = StepTimeModel(
        coefficients=tuple(float(x) for x in b),  # type: ignore[arg-type]
        scrapes=int(grid["scrapes"][good].sum()),
        minutes=minutes,
        preempts=preempts,
    )
    r = np.where(good, ln_speed(grid, [model] * len(grid.targets)), np.nan)
    known = np.isfinite(r)
    misfit = 1.4826 * float(np.median(np.abs(r[known] - np.median(r[known]))))
    windows = windows_of(grid, r).document()
    return model.model_copy(update={"misfit_ratio": misfit, "hourly_windows": windows})


def nonnegative_fit(met: Floats, itl: Floats) -> Floats:
    """b ≥ 0 that minimises ``1 − met·b / itl``: Lawson and Hanson's algorithm with rows reweighted
    in each round (Huber 1964). ``met``: (minute, covariate), the first column 1.
    """
    from scipy.optimize import nnls  # loaded where it is needed

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

    ``models``: of each target.
    """
    none = [math.nan] * 5
    b = np.array([none if x is None else x.coefficients for x in models]).T[..., None]
    names = ("itl", "requests", "kv", "prefill", "overlap")
    values = {name: grid[name].astype(np.float64) for name in names}
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = sum(part * each for part, each in zip(token_met(values), b, strict=True))
        r = np.log(expected / values["itl"])
    counts = grid.counts(np.array([x is not None and x.preempts for x in models]))
    return np.where(counts & np.isfinite(r), r, np.nan)


def missing(minutes: int) -> str:
    """What a model still needs, in words."""
    return f"{minutes} of {MIN_MINUTES} minutes of data"
