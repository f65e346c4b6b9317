"""The load model: inter-token latency as a function of what a forward pass has to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.arrays import Codes, Floats, Integers, Singles
from driftwatch.collect.schema import KEY
from driftwatch.detect.speed.change import deepest_falls
from driftwatch.detect.speed.fit import (
    EVERYTHING,
    Ranges,
    bunched,
    inside,
    nonnegative_fit,
    novelty,
    ranges_of,
)
from driftwatch.detect.speed.load import (
    AGAIN,
    CHANGED,
    COMPLETE,
    ITL,
    PASSES,
    QUEUED,
    REQUESTS,
    RESTARTED,
    SATURATED,
    STANDING,
    WARM_MINUTES,
    features,
    load_of,
)

# Whatever the scrape interval: counters of a minute are as exact from two scrapes as from twelve
# (decision 35).
MIN_MINUTES = 20
# q95/q05 of requests per forward pass. 3 of single scrapes; minutes average
# over them, and outside its range a model is only trusted as far as the slack below says.
MIN_SPREAD = 1.5
FALLS_MINUTES = 720  # fewer have not seen what a day does to ln r
# Beyond its range a model may be this much too low a doubling of the load (docs/methods/speed.md).
SLACK_PER_DOUBLING = 0.05
BLOCK_SECONDS = 600
# Where requests wait so many times longer than the fit knows (and more than 1.5 passes), bursts
# fill the token budget and what a token met is more than the covariates say: r comes out too low.
BURST_TIMES = 1.5
_TOO_LOW_IN_BURSTS = math.log(0.95)

Quadruple = tuple[float, float, float, float]
_NOWHERE = (math.inf, math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class LoadModel:
    """ITL = b0 + b1·n + b2·KV + b3·P seconds, with the range it was fitted on.

    n, KV and P as a token meets them (:func:`driftwatch.detect.speed.load.features`).
    """

    # b0 seconds, b1 seconds per request, b2 seconds per KV token, b3 seconds per prefill token;
    # none negative
    coefficients: Quadruple
    # 1 % and 99 % quantile of requests per forward pass in the fit
    requests_range: tuple[float, float]
    scrapes: int  # how many the fit saw
    minutes: int
    # 99 % quantile of n, KV and P in the fit: beyond them the model is extrapolated
    edges: tuple[float, float, float] = _NOWHERE
    # 98 % quantile of passes per second × the model at the mean pass, at least 1: no engine works
    # more than all the time, so what is above 1 is the model's own error
    work_ratio: float = 1.0
    queued_passes: float = 0.0  # 95 % quantile of the mean wait in the queue, in units of ITL
    misfit_ratio: float = 0.0  # robust standard deviation of ln r in the fit
    composition: Ranges = EVERYTHING  # what kind of work the fit saw at most (``ranges_of``)
    # how far ln r fell at most in windows of the fit (``deepest_falls``), though nothing was slow;
    # infinite where too few say
    falls: tuple[float, float] = (math.inf, math.inf)
    together: float = 0.0  # median of ``bunched`` in the fit, which has that in it

    def document(self) -> dict[str, Any]:
        """As JSON; what is infinite is null."""
        document = asdict(self)
        for name in _OPEN:
            document[name] = [edge if math.isfinite(edge) else None for edge in document[name]]
        return {name: list(v) if isinstance(v, tuple) else v for name, v in document.items()}


_OPEN = ("edges", "composition", "falls")


def model_from(document: Mapping[str, Any]) -> LoadModel:
    """The model of a document.

    Raises ValueError: a part is missing, unknown, or no model can have it; with all that is wrong.
    """
    wrong: list[str] = []
    names = {f.name for f in fields(LoadModel)}
    needed = {"coefficients", "requests_range", "scrapes", "minutes"}
    if missing := sorted(needed - document.keys()):
        wrong.append(f"missing: {', '.join(missing)}")
    if unknown := sorted(document.keys() - names):
        wrong.append(f"unknown: {', '.join(unknown)}")

    def numbers(name: str, count: int, empty: float | None = None) -> tuple[float, ...]:
        value = document.get(name)
        listed = value if isinstance(value, list | tuple) else [value]
        listed = [empty if x is None else x for x in listed]
        if len(listed) != count or not all(
            isinstance(x, int | float) and not isinstance(x, bool) and x >= 0 for x in listed
        ):
            wrong.append(f"{name}: {count} numbers of at least 0 are needed, not {value!r:.60}")
            return (0.0,) * count
        return tuple(float(x) for x in listed if x is not None)

    present = [n for n in names if n in document]
    sizes = {"coefficients": 4, "requests_range": 2, "edges": 3, "composition": 3, "falls": 2}
    values = {n: numbers(n, sizes.get(n, 1), math.inf if n in _OPEN else None) for n in present}
    if not wrong and sum(values["coefficients"]) <= 0:
        wrong.append("coefficients: all are 0")
    if wrong:
        raise ValueError("; ".join(wrong))
    content: dict[str, Any] = {n: v if n in sizes else v[0] for n, v in values.items()}
    content |= {n: int(content[n]) for n in ("scrapes", "minutes")}
    return LoadModel(**content)


@dataclass(frozen=True, slots=True)
class TooLittle:
    """Why there is no model yet."""

    reason: (
        str  # what is missing, e.g. ``15 of 20 minutes of data, load varies by 1.2×, 1.5× needed``.
    )
    scrapes: int  # usable ones
    spread: float | None  # q95/q05 of requests per forward pass; None without a usable minute
    # when there would be enough at the present pace; None where only other load helps
    earliest: datetime | None


def fit(minutes: pl.DataFrame) -> LoadModel | TooLittle:
    """The model of minutes that somebody accepts as good: one target's, or a pool's.

    Minutes that say nothing of speed alone (idle, preempting, just restarted) are left out.
    """
    ordered = minutes.sort([*KEY, "end"])
    load = load_of(ordered)
    warming = ordered.select(
        (pl.Series("changed", load.values[:, CHANGED]) == RESTARTED)
        .cast(pl.Float64)
        .alias("restarts")
    ).with_columns(ordered.select(*KEY, "end"))
    blocks = ordered.select(
        (
            pl.struct(KEY).rank("dense").cast(pl.Int64) * 2**32
            + pl.col("end").dt.epoch("s") // BLOCK_SECONDS
        ).alias("block")
    ).to_series()
    recent = warming.select(
        pl.col("restarts").rolling_max_by("end", window_size=f"{WARM_MINUTES}m").over(KEY)
    ).to_series()
    good = (load.why == COMPLETE) & ~(recent.to_numpy() > 0)
    distinct = ordered["end"].filter(pl.Series(good)).n_unique()
    scrapes = float(load.scrapes[good].sum())
    result = model_of(load.values[good], scrapes, blocks.to_numpy()[good], distinct)
    if isinstance(result, LoadModel):
        if result.minutes < FALLS_MINUTES:
            return result
        cold = np.where(recent.to_numpy()[:, None] > 0, np.nan, load.values)
        return replace(result, falls=_falls(result, ordered, cold))
    last = ordered["end"].max()
    short = MIN_MINUTES - distinct
    # with enough minutes only another load helps
    earliest = None
    if short > 0 and good.any() and isinstance(last, datetime):
        earliest = last + timedelta(minutes=short)
    return TooLittle(result.reason, result.scrapes, result.spread, earliest)


def _falls(model: LoadModel, ordered: pl.DataFrame, values: Singles) -> tuple[float, float]:
    """How far ln r fell at most in the windows of the fit, of whichever target it did."""
    target = ordered.select(pl.struct(KEY).rank("dense")).to_series().to_numpy()
    end = ordered["end"].dt.epoch("s").to_numpy() // 60
    falls_of = []
    for one in np.unique(target):
        at = end[target == one] - end[target == one].min()
        whole = np.full((1, at.max() + 1, values.shape[1]), np.nan, dtype=np.float32)
        whole[0, at] = values[target == one]
        ln_speed, above, below, _why = LoadModels.of([model]).ln_speed(whole)
        wrong = np.nan_to_num(above - below), bunched(whole, model.coefficients[3], ln_speed)
        falls_of.append(deepest_falls(ln_speed, *wrong, FALLS_MINUTES // 2))
    short, long = ([f for f in falls if f < math.inf] for falls in zip(*falls_of, strict=True))
    return max(short, default=math.inf), max(long, default=math.inf)


def model_of(
    values: npt.NDArray[np.floating],
    scrapes: float,
    blocks: Integers,
    minutes: int,
    *,
    again: bool = True,
) -> LoadModel | TooLittle:
    """The model of known minutes (minute of a target, 12).

    ``blocks``: which are of the same target and ten minutes; ``minutes``: how many different ones;
    ``again``: whether it is fitted once more to the work that the first fit can describe.
    """
    requests = np.asarray(values[:, REQUESTS], dtype=np.float64)
    spread = None
    if len(values):
        low, high = np.quantile(requests, (0.05, 0.95))
        spread = float(high / low) if low > 0 else None
    if min(minutes, len(values)) < MIN_MINUTES or (spread or 0.0) < MIN_SPREAD:
        return TooLittle(missing(minutes, spread), int(scrapes), spread, None)
    load = features(values)
    itl = np.asarray(values[:, ITL], dtype=np.float64)
    b = nonnegative_fit(load, itl, blocks)
    expected = load @ b
    work = features(values, of_passes=True) @ b * np.asarray(values[:, PASSES], np.float64)
    ratio = max(1.0, float(np.quantile(work, 0.98)))
    residual = np.log(np.maximum(expected / itl, work / ratio))
    ranges = ranges_of(values, residual)
    if again:
        # work that the model cannot describe bends it for the rest
        is_inside = inside(values, ranges)
        share = float(is_inside.mean())
        minutes_inside = round(minutes * share)
        better = model_of(
            values[is_inside], scrapes * share, blocks[is_inside], minutes_inside, again=False
        )
        if isinstance(better, LoadModel):
            return replace(better, composition=ranges)
    low, high = np.quantile(requests, (0.01, 0.99))
    b0, b1, b2, b3 = (float(x) for x in b)
    n, kv, prefill = (float(x) for x in np.quantile(load[:, 1:], 0.99, axis=0))
    return LoadModel(
        coefficients=(b0, b1, b2, b3),
        requests_range=(float(low), float(high)),
        scrapes=int(scrapes),
        minutes=len(values),
        edges=(n, kv, prefill),
        work_ratio=ratio,
        queued_passes=float(np.quantile(np.asarray(values[:, QUEUED], np.float64), 0.95)),
        misfit_ratio=1.4826 * float(np.median(np.abs(residual - np.median(residual)))),
        composition=ranges,
        together=float(np.median(bunched(values))),
    )


def missing(minutes: int, spread: float | None, *, shared: bool = False) -> str:
    """What a model still needs, in words; ``spread``: of the load; ``shared``: by the pool."""
    data = "of its pool's data" if shared else "of data"
    parts = [f"{minutes} of {MIN_MINUTES} minutes {data}"] if minutes < MIN_MINUTES else []
    if (spread or 0.0) < MIN_SPREAD:
        # rounded down: 1.4998 is short of 1.5, and to be read so
        spread_text = "unknown" if spread is None else f"{math.floor(spread * 100.0) / 100.0:.3g}×"
        parts.append(f"load varies by {spread_text}, {MIN_SPREAD:g}× needed")
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class LoadModels:
    """The models of many targets as arrays; a row of NaN has none."""

    coefficients: Floats  # (target, 4)
    edges: Floats  # (target, 3)
    least: Floats  # (target,), lower end of the range of requests per forward pass
    work: Floats  # (target,)
    queued: Floats  # (target,), waits in the queue up to which the load can be told
    composition: Floats  # (target, 3) and (target,)
    together: Floats

    @classmethod
    def of(cls, models: list[LoadModel | None]) -> LoadModels:
        """One per target."""
        none = [math.nan] * 4
        return cls(
            np.array([none if x is None else x.coefficients for x in models]).reshape(-1, 4),
            np.array([_NOWHERE if x is None else x.edges for x in models]).reshape(-1, 3),
            np.array([0.0 if x is None else x.requests_range[0] for x in models], dtype=np.float64),
            np.array([1.0 if x is None else x.work_ratio for x in models], dtype=np.float64),
            BURST_TIMES
            * np.array([1.0 if x is None else max(1.0, x.queued_passes) for x in models]),
            np.array([EVERYTHING if x is None else x.composition for x in models]).reshape(-1, 3),
            np.array([0.0 if x is None else x.together for x in models], dtype=np.float64),
        )

    def ln_speed(self, values: npt.NDArray[np.floating]) -> tuple[Floats, Floats, Floats, Codes]:
        """ln r of ``values`` (target, minute, 12), slack above and below the range, why unknown.

        r is the larger of expected over measured ITL, and expected busy time over the whole time (a
        bound from below): an engine that did so much work is at least so fast.
        """
        wide = features(values)
        b = self.coefficients[:, None, :]
        with np.errstate(invalid="ignore", divide="ignore"):
            by_token = (wide * b).sum(axis=-1) / values[..., ITL]
            passes = features(values, of_passes=True)
            by_work = (passes * b).sum(axis=-1) * values[..., PASSES] / self.work[:, None]
            # a covariate that the fit never saw above 0 has no range to leave
            edges = np.where(self.edges > 0, self.edges, math.inf)
            above = np.max(wide[..., 1:] / edges[:, None, :], axis=-1)
            below = self.least[:, None] / values[..., REQUESTS]
            ln = np.log(np.maximum(by_token, by_work))
            split = _split(b, wide, self.edges[:, None, :])
            again = b[..., 3] * values[..., AGAIN]
            if np.any(again > 0):
                # what was computed again was work as well; it is not on the page
                of_work = by_work + again * values[..., PASSES] / self.work[:, None]
                most = np.maximum(by_token + again / values[..., ITL], of_work)
                split = split + np.where(again > 0, np.log(most) - ln, 0.0)
        mixed, why = novelty(values, self.composition)
        over, under = _slack(above) + mixed, _slack(below)
        with np.errstate(invalid="ignore"):
            bursts = (values[..., QUEUED] > self.queued[:, None]) & (values[..., STANDING] != 1.0)
            bursts &= ln + over + under < _TOO_LOW_IN_BURSTS
        why = np.where((why == COMPLETE) & bursts, np.int8(SATURATED), why)
        return np.where(why == COMPLETE, ln, np.nan), over + split, under, why


def _split(b: Floats, load: Floats, edges: Floats) -> Floats:
    """By how much the model is too low where requests and KV tokens have parted, in ln."""
    has_edges = (edges[..., :2] > 0) & np.isfinite(edges[..., :2])
    most = np.where(has_edges.all(axis=-1, keepdims=True), edges[..., :2], np.nan)
    times = load[..., 1:3] / most
    cost = b[..., 1:3] * most
    # what has left its range takes over from the other as far as it is ahead of it
    ahead = np.minimum(times - times[..., ::-1], times - 1.0)
    extra = np.max(cost[..., ::-1] * np.maximum(ahead, 0.0), axis=-1)
    slack: Floats = np.log1p(extra / (load * b).sum(axis=-1))
    return np.where(np.isnan(slack), 0.0, slack)


def _slack(times: Floats) -> Floats:
    """By how much a model may be wrong so many times outside its range, in ln."""
    doublings = np.log2(np.maximum(times, 1.0))
    return np.log1p(SLACK_PER_DOUBLING * doublings)
