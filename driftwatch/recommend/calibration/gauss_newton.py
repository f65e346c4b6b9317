"""Gauss-Newton over the logarithms of a law's coefficients, each evaluation a replay.

Minimised is the mean Huber loss of the weighted log residuals plus the penalty of the prior:

    Σ huber(log(replayed / observed) / noise) + Σ (log(c / prior) / log_sd)²

Derivatives are finite differences of replays of the same requests; a coefficient is moved far
enough that the mean step changes by a few percent, as a replay is a staircase under the microscope.
c4 keeps its ratio to c1: both are operations. The fifth parameter, time to first token outside the
engine, needs no replay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from driftwatch.recommend.calibration.fitted import COEFFICIENTS, RESIDUALS
from driftwatch.recommend.calibration.playback import Playback, Played
from driftwatch.simulate.step_time import StepTime

Floats = npt.NDArray[np.float64]

_TTFT = RESIDUALS.index("ttft_seconds")
OVERHEAD_SD_SECONDS = 0.01
HUBER = 2.0  # sd from which on a residual pulls no harder
_STEP_CHANGE = 0.05  # of the mean step time, for a derivative
_MOST_MOVE = 0.5  # of a log coefficient, for a derivative
# What is moved for a derivative: everything, then c1, c2, c3 by themselves. The speed as a whole is
# what the metrics say best; as the sum of four differences it would be what they say worst.
_DIRECTIONS = np.array([[1, 1, 1, 1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=float)
_FARTHEST = 1.0  # a log coefficient moves in one iteration
_LIMIT = 6.0  # log units from the prior
_CLIP = 3.0  # log residuals beyond say no more
_TRIES = 4
_TINY_SECONDS = 1e-12
_SCALINGS = 4
_NEAR = 0.03  # log of replayed over observed interval


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A law and what its replay gave.

    Attributes:
        x: log of each coefficient over the prior's, and the overhead over its sd.
        law: the law.
        played: the replay.
        residuals: weighted log residuals, flat; 0 where nothing is compared.
        cost: the penalty included.
    """

    x: Floats
    law: StepTime
    played: Played
    residuals: Floats
    cost: float


@dataclass(frozen=True, slots=True, eq=False)
class Descent:
    """One variant's problem.

    Attributes:
        playback: the traffic.
        prior: law at x = 0.
        log_sd: of the four coefficients.
        noise: sd of each residual, a row a chunk.
        huber: weighted residual from which on one pulls no harder.
    """

    playback: Playback
    prior: StepTime
    log_sd: Floats
    noise: Floats
    huber: float = HUBER

    def law(self, x: Floats) -> StepTime:
        """The coefficients at x."""
        scale = np.exp(np.clip(x[:4], -_LIMIT, _LIMIT))
        p = self.prior
        return replace(
            p,
            c0_seconds=max(p.c0_seconds, _TINY_SECONDS) * float(scale[0]),
            c1_seconds_per_prefill_token=max(p.c1_seconds_per_prefill_token, _TINY_SECONDS)
            * float(scale[1]),
            c2_seconds_per_decode_seq=max(p.c2_seconds_per_decode_seq, _TINY_SECONDS)
            * float(scale[2]),
            c3_seconds_per_kv_token=max(p.c3_seconds_per_kv_token, _TINY_SECONDS) * float(scale[3]),
            c4_seconds_per_prefill_pair=p.c4_seconds_per_prefill_pair * float(scale[1]),
        )

    def at(self, x: Floats) -> Point:
        """Replay the law at x."""
        law = self.law(x)
        return self.judged(x, law, self.playback.play(law))

    def judged(self, x: Floats, law: StepTime, played: Played) -> Point:
        """A replay, compared."""
        residuals = self.weighted(played, float(x[4]))
        size = np.abs(residuals)
        bounded = np.where(size > self.huber, self.huber * (2 * size - self.huber), size**2)
        cost = float(bounded.sum() + (self._scaled(x) ** 2).sum())
        return Point(x, law, played, residuals, cost)

    def weighted(self, played: Played, overhead: float) -> Floats:
        """Weighted log residuals, flat."""
        values = played.values.copy()
        values[:, _TTFT] += overhead * OVERHEAD_SD_SECONDS
        seen = self.playback.seen
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(values) - np.log(seen)
        # nothing replayed where something was seen is as wrong as can be said
        found[np.isneginf(found)] = -_CLIP
        found[~self.playback.comparable] = np.nan
        found = np.clip(found, -_CLIP, _CLIP) / self.noise
        return np.asarray(np.where(np.isfinite(found), found, 0.0).ravel())

    def _scaled(self, x: Floats) -> Floats:
        return np.append(x[:4] / self.log_sd, x[4])

    def eased(self, point: Point) -> tuple[Descent, Point]:
        """The same with the bound that suits how far off this point is.

        Far from the solution every residual is huge; bounded all alike, they would pull it there
        in small steps.
        """
        size = np.abs(point.residuals[point.residuals != 0])
        huber = max(HUBER, 2.0 * float(np.median(size))) if len(size) else HUBER
        eased = replace(self, huber=huber)
        return eased, eased.judged(point.x, point.law, point.played)

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
            x[:4] -= np.clip(off / power, -_FARTHEST, _FARTHEST)
            following = self.at(np.clip(x, -_LIMIT, _LIMIT))
            after = self._interval_off(following)
            moved = float(point.x[0] - following.x[0])
            if after is not None and moved and (off - after) / moved > 0:
                power = float(np.clip((off - after) / moved, 1.0, 10.0))
            if following.cost < point.cost:
                point = following
        return point

    def _interval_off(self, point: Point) -> float | None:
        """Median log of replayed over observed interval; None where none is observed."""
        off = np.log(_intervals(point.played.values)) - np.log(_intervals(self.playback.seen))
        off = off[np.isfinite(off) & self.playback.comparable]
        return float(np.median(off)) if len(off) else None

    def derivatives(self, point: Point) -> Floats:
        """Of the weighted residuals, by replays: a column a parameter."""
        law, mean = point.law, point.played.mean_composition
        parts = np.array(
            [
                law.c0_seconds,
                law.c1_seconds_per_prefill_token * mean[0],
                law.c2_seconds_per_decode_seq * mean[1],
                law.c3_seconds_per_kv_token * mean[2],
            ]
        )
        shares = np.maximum(parts / parts.sum(), 1e-9)
        shares[0] = 1.0
        columns = []
        for share, direction in zip(shares, _DIRECTIONS, strict=True):
            move = float(np.clip(_STEP_CHANGE / share, _STEP_CHANGE, _MOST_MOVE))
            x = point.x.copy()
            x[:4] += move * direction
            other = self.weighted(self.playback.play(self.law(x)), float(x[4]))
            columns.append((other - point.residuals) / move)
        columns = list(np.linalg.solve(_DIRECTIONS, np.array(columns)))
        nudge = 0.1
        other = self.weighted(point.played, float(point.x[4]) + nudge)
        columns.append((other - point.residuals) / nudge)
        return np.array(columns).T

    def information(self, point: Point, slopes: Floats) -> Floats:
        """J^T W J of the data alone, W by Huber."""
        pull = self._pull(point)
        return np.asarray(slopes.T @ (slopes * pull[:, None]))

    def _pull(self, point: Point) -> Floats:
        size = np.maximum(np.abs(point.residuals), 1e-12)
        return np.asarray(np.minimum(1.0, self.huber / size))

    def improve(self, point: Point, slopes: Floats, damping: float) -> tuple[Point, float]:
        """One damped step (Levenberg, Marquardt) and the damping for the next.

        The same point where no step of ``_TRIES`` helps.
        """
        pull = self._pull(point)
        precision = np.append(1.0 / self.log_sd**2, 1.0)
        slope = slopes.T @ (point.residuals * pull) + precision * point.x
        matrix = self.information(point, slopes) + np.diag(precision)
        for _ in range(_TRIES):
            step = -np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), slope)
            largest = float(np.abs(step[:4]).max())
            x = point.x + step * min(1.0, _FARTHEST / max(largest, 1e-12))
            x[:4] = np.clip(x[:4], -_LIMIT, _LIMIT)
            x[4] = max(float(x[4]), 0.0)
            found = self.at(x)
            if found.cost < point.cost:
                return found, damping / 5.0
            damping *= 6.0
        return point, damping


def _intervals(values: Floats) -> Floats:
    """Mean time between tokens; where it is not observed, by Little's law: running over rate."""
    rate = values[:, RESIDUALS.index("generation_tokens_per_second")]
    running = values[:, RESIDUALS.index("running_requests")]
    itl = values[:, RESIDUALS.index("itl_seconds")]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(np.isfinite(itl), itl, running / rate)
    return np.where(found > 0, found, np.nan)


def coefficients_of(law: StepTime) -> dict[str, float]:
    """By their short names."""
    values = (
        law.c0_seconds,
        law.c1_seconds_per_prefill_token,
        law.c2_seconds_per_decode_seq,
        law.c3_seconds_per_kv_token,
    )
    return dict(zip(COEFFICIENTS, values, strict=True))
