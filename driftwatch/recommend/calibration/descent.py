"""Gauss-Newton over the logarithms of a step-time model's coefficients, each evaluation a
simulation. Minimised is the Huber loss of the weighted log residuals plus what is believed before:

    Σ huber(log(simulated / observed) / noise) + Σ (log(c / prior) / log_sd)² + Σ (wander / sd)²

The wander is the engine's own (neighbours on the host, clocks, temperature): a factor on the steps
of each chunk. Derivatives are finite differences of simulations of the same requests, over steps
that change the mean step by a few percent: a simulation is a staircase under the microscope. c4
keeps its ratio to c1. Time to first token outside the engine and the wander need no simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from driftwatch.arrays import Floats
from driftwatch.recommend.calibration.fits import COEFFICIENTS, RESIDUALS, LoadBand
from driftwatch.recommend.calibration.playback import Playback, Played
from driftwatch.simulate.step_time import StepTime

_TTFT = RESIDUALS.index("ttft_seconds")
OVERHEAD_SD_SECONDS = 0.01
OVERHEAD, WANDER = 4, 5  # places in x: four coefficients, the overhead, a chunk each
HUBER = 2.0  # sd from which on a residual pulls no harder
_STEP_CHANGE = 0.06  # of the mean step time, for a derivative
_MOST_MORE = 2.0  # of a coefficient, for a derivative: what it does must stand out of chance
# What is moved for a derivative: everything, then c1, c2, c3 by themselves. The speed as a whole is
# what the metrics say best; as the sum of four differences it would be what they say worst.
_DIRECTIONS = np.array([[1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=float)
_FARTHEST = 1.0  # a log coefficient moves in one iteration
_LIMIT = 6.0  # log units from the prior
_CLIP = 3.0  # log residuals beyond say no more
_MOST_OTHER = 0.7  # log, of c1 between two variants
_TRIES = 4
_TINY_SECONDS = 1e-12
_SCALINGS = 4
_NEAR = 0.03  # log of simulated over observed interval


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A step-time model and what its simulation gave."""

    # log of each coefficient over the prior's, the overhead over its sd, the wander's logs
    x: Floats
    step_time: StepTime
    played: Played
    residuals: Floats
    cost: float

    @property
    def wander(self) -> Floats:
        """Log of a factor on the steps of each chunk."""
        return self.x[WANDER:]


@dataclass(frozen=True, slots=True, eq=False)
class Descent:
    """One variant's problem."""

    playback: Playback
    prior: StepTime
    log_sd: Floats
    noise: Floats
    wander_sd: float
    huber: float = HUBER

    @property
    def precision(self) -> Floats:
        """Of x before the data, its diagonal."""
        wander = np.full(len(self.playback.starts), 1.0 / self.wander_sd**2)
        return np.concatenate([1.0 / self.log_sd**2, [1.0], wander])

    def start(self) -> Floats:
        """The prior's x."""
        return np.zeros(WANDER + len(self.playback.starts))

    def step_time(self, x: Floats) -> StepTime:
        """The coefficients at x."""
        c0, c1, c2, c3 = (float(v) for v in np.exp(np.clip(x[:4], -_LIMIT, _LIMIT)))
        p = self.prior
        return replace(
            p,
            c0_seconds=max(p.c0_seconds, _TINY_SECONDS) * c0,
            c1_seconds_per_prefill_token=max(p.c1_seconds_per_prefill_token, _TINY_SECONDS) * c1,
            c2_seconds_per_decode_seq=max(p.c2_seconds_per_decode_seq, _TINY_SECONDS) * c2,
            c3_seconds_per_kv_token=max(p.c3_seconds_per_kv_token, _TINY_SECONDS) * c3,
            c4_seconds_per_prefill_pair=p.c4_seconds_per_prefill_pair * c1,
        )

    def x_of(self, step_time: StepTime) -> Floats:
        """The first four of x at which the coefficients are these."""
        pairs = zip(
            coefficients_of(step_time).values(), coefficients_of(self.prior).values(), strict=True
        )
        logs = [np.log(max(now, _TINY_SECONDS) / max(was, _TINY_SECONDS)) for now, was in pairs]
        return np.asarray(np.clip(logs, -_LIMIT, _LIMIT), dtype=np.float64)

    def at(self, x: Floats) -> Point:
        """Simulate the step-time model at x."""
        step_time = self.step_time(x)
        return self.judged(x, step_time, self.playback.play(step_time, x[WANDER:]))

    def judged(self, x: Floats, step_time: StepTime, played: Played) -> Point:
        """A simulation, compared."""
        residuals = self._weighted(played, float(x[OVERHEAD]))
        size = np.abs(residuals)
        bounded = np.where(size > self.huber, self.huber * (2 * size - self.huber), size**2)
        cost = float(bounded.sum() + (self.precision * x**2).sum())
        return Point(x, step_time, played, residuals, cost)

    def _weighted(self, played: Played, overhead: float) -> Floats:
        """Weighted log residuals, flat."""
        values = played.values.copy()
        values[:, _TTFT] += overhead * OVERHEAD_SD_SECONDS
        with np.errstate(divide="ignore", invalid="ignore"):
            residuals = np.log(values) - np.log(self.playback.measured)
        # nothing simulated where something was seen is as wrong as can be said
        residuals[np.isneginf(residuals)] = -_CLIP
        residuals[~self.playback.comparable] = np.nan
        residuals = np.clip(residuals, -_CLIP, _CLIP) / self.noise
        return np.asarray(np.where(np.isfinite(residuals), residuals, 0.0).ravel())

    def eased(self, point: Point) -> tuple[Descent, Point]:
        """The same with the bound that suits how far off this point is.

        Far from the solution every residual is huge; bounded all alike, they would pull it there in
        small steps.
        """
        size = np.abs(point.residuals[point.residuals != 0])
        huber = max(HUBER, 2.0 * float(np.median(size))) if len(size) else HUBER
        eased = replace(self, huber=huber)
        return eased, eased.judged(point.x, point.step_time, point.played)

    def like(self, point: Point) -> Floats:
        """x of this variant where a typical prompt takes as long as under another one's step-time
        model.
        """
        requests, budget = self.playback.requests, self.playback.configuration
        tokens = requests.prompt_tokens - np.maximum(requests.cached_tokens, 0)
        pairs = float((tokens * (tokens + 1.0)).mean()) / 2
        step = float(np.clip(tokens.mean(), 1.0, budget.max_num_batched_tokens))

        def seconds(step_time: StepTime) -> float:
            above = max(step - step_time.hinge_tokens, 0.0)
            return (
                step_time.c1_seconds_per_prefill_token * above
                + step_time.c4_seconds_per_prefill_pair * pairs
            )

        wanted, mine = seconds(point.step_time), seconds(self.prior)
        x = point.x.copy()
        if mine > 0 and wanted > 0:  # within a hinge nothing is told
            x[1] = np.clip(np.log(wanted / mine), x[1] - _MOST_OTHER, x[1] + _MOST_OTHER)
        return x

    def scaled(self, point: Point) -> Point:
        """Near enough to start: all coefficients times the factor that gives the mean interval.

        A secant in logarithms: in a queue the interval answers a slower engine more than in
        proportion.
        """
        power = 1.0
        for _ in range(_SCALINGS):
            off = self._interval_off(point)
            if off is None or abs(off) < _NEAR:
                break
            x = point.x.copy()
            x[:4] = np.clip(x[:4] - np.clip(off / power, -_FARTHEST, _FARTHEST), -_LIMIT, _LIMIT)
            following = self.at(x)
            after = self._interval_off(following)
            moved = float(point.x[0] - following.x[0])
            if after is not None and moved and (off - after) / moved > 0:
                power = float(np.clip((off - after) / moved, 1.0, 10.0))
            if following.cost < point.cost:
                point = following
        return point

    def _interval_off(self, point: Point) -> float | None:
        """Median log of simulated over observed interval; None where none is observed."""
        off = np.log(_intervals(point.played.values)) - np.log(_intervals(self.playback.measured))
        off = off[np.isfinite(off) & self.playback.comparable]
        return float(np.median(off)) if len(off) else None

    def derivatives(self, point: Point) -> Floats:
        """Of the weighted residuals, four by simulations: a column a parameter."""
        step_time, mean = point.step_time, point.played.mean_composition
        parts = np.array([*coefficients_of(step_time).values()]) * (1.0, *mean)
        shares = np.maximum(parts / parts.sum(), 1e-9)
        shares[0] = 1.0
        moved = []
        for share, direction in zip(shares, _DIRECTIONS, strict=True):
            # the step is linear in a coefficient: more of it, not of its logarithm
            more = float(np.clip(_STEP_CHANGE / share, _STEP_CHANGE, _MOST_MORE))
            x = point.x.copy()
            x[:4] += np.log1p(more) * direction
            played = self.playback.play(self.step_time(x), point.wander)
            other = self._weighted(played, float(x[OVERHEAD]))
            moved.append((other - point.residuals) / more)
        by_coefficient = np.linalg.solve(_DIRECTIONS, np.array(moved)).T
        nudge = 0.1
        other = self._weighted(point.played, float(point.x[OVERHEAD]) + nudge)
        by_overhead = ((other - point.residuals) / nudge)[:, None]
        chunks = len(self.playback.starts)
        own = np.repeat(np.eye(chunks), len(RESIDUALS), axis=0)
        return np.hstack([by_coefficient, by_overhead, own * moved[0][:, None]])

    def information(self, point: Point, slopes: Floats) -> Floats:
        """J^T W J of the data alone, W by Huber."""
        return np.asarray(slopes.T @ (slopes * self._pull(point)[:, None]))

    def covariance(self, point: Point, slopes: Floats) -> Floats:
        """Of x after the data; a misfit beyond the noise widens it."""
        misfit = max(1.0, loss_of(point))
        information = self.information(point, slopes) / misfit
        return np.asarray(np.linalg.inv(information + np.diag(self.precision)), dtype=np.float64)

    def _pull(self, point: Point) -> Floats:
        size = np.maximum(np.abs(point.residuals), 1e-12)
        return np.asarray(np.minimum(1.0, self.huber / size))

    def improve(self, point: Point, slopes: Floats, damping: float) -> tuple[Point, float]:
        """One damped step (Levenberg, Marquardt) and the damping for the next.

        The same point where no step of ``_TRIES`` helps.
        """
        slope = slopes.T @ (point.residuals * self._pull(point)) + self.precision * point.x
        matrix = self.information(point, slopes) + np.diag(self.precision)
        for _ in range(_TRIES):
            step = -np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), slope)
            largest = float(np.abs(step[:4]).max())
            x = point.x + step * min(1.0, _FARTHEST / max(largest, 1e-12))
            x[:4] = np.clip(x[:4], -_LIMIT, _LIMIT)
            x[OVERHEAD] = max(float(x[OVERHEAD]), 0.0)
            after = self.at(x)
            if after.cost < point.cost:
                return after, damping / 5.0
            damping *= 6.0
        return point, damping


def loss_of(point: Point) -> float:
    """Mean squared weighted residual; one that is 10 sd off counts as that."""
    count = int(np.count_nonzero(point.residuals))
    return float(np.minimum(point.residuals**2, 100.0).sum() / max(count, 1))


def _intervals(values: Floats) -> Floats:
    """Mean time between tokens; where it is not observed, by Little's law: running over rate."""
    rate = values[:, RESIDUALS.index("generation_tokens_per_second")]
    running = values[:, RESIDUALS.index("running_requests")]
    itl = values[:, RESIDUALS.index("itl_seconds")]
    with np.errstate(divide="ignore", invalid="ignore"):
        intervals = np.where(np.isfinite(itl), itl, running / rate)
    return np.where(intervals > 0, intervals, np.nan)


def coefficients_of(step_time: StepTime) -> dict[str, float]:
    """By their short names."""
    values = (
        step_time.c0_seconds,
        step_time.c1_seconds_per_prefill_token,
        step_time.c2_seconds_per_decode_seq,
        step_time.c3_seconds_per_kv_token,
    )
    return dict(zip(COEFFICIENTS, values, strict=True))


_RUNNING, _ITL = RESIDUALS.index("running_requests"), RESIDUALS.index("itl_seconds")


def load_bands(descent: Descent, point: Point) -> tuple[LoadBand, ...]:
    """The bands of a fit, lightest load first; only chunks that were compared are in one."""
    playback = descent.playback
    running = playback.measured[:, _RUNNING]
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.log(point.played.values[:, _ITL] / playback.measured[:, _ITL]) - point.wander
        octave = np.floor(np.log2(running))
    comparable = np.isfinite(off) & np.isfinite(octave) & playback.comparable
    bands = []
    for number in np.unique(octave[comparable]):
        those = comparable & (octave == number)
        tokens = playback.tokens[those]
        share = tokens / tokens.sum()
        variance = descent.noise[those, _ITL] ** 2 + descent.wander_sd**2
        bands.append(
            LoadBand(
                running_requests=float(share @ running[those]),
                itl_seconds=float(share @ playback.measured[those, _ITL]),
                off_ratio=float(np.expm1(share @ off[those])),
                log_sd=float(np.sqrt(share**2 @ variance)),
                tokens_ratio=float(tokens.sum() / playback.tokens[comparable].sum()),
            )
        )
    return tuple(bands)
