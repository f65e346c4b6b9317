"""Whether the interval of a forecast capacity holds the truth, on hidden engines.

The truth is the saturated rate of the hidden engine under other settings, with the true requests;
the forecast is that of every model that an answer must hold in. Judged is the capacity over today's
(what a change promises) and the capacity itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from calibrating import hidden
from driftwatch.recommend.calibration.calibrate import calibrate
from driftwatch.recommend.calibration.fits import Calibration
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.gates import fit_gates, ttft_is_skipped
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.demand import capacity_per_second
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

MOST_REQUESTS = 3000
KNOWN = (True, False)


@dataclass(frozen=True)
class Interval:
    """Capacity of one configuration: requests a second, forecast and true."""

    case: str
    knob: str
    low: float
    high: float
    truth: float
    today_low: float
    today_high: float
    today_truth: float
    gain_low: float
    gain_high: float
    answered: bool

    @property
    def holds(self) -> bool:
        """The interval holds the true capacity."""
        return self.low <= self.truth <= self.high

    @property
    def gain_holds(self) -> bool:
        """The interval holds the true capacity over today's."""
        return self.gain_low <= self.truth / self.today_truth <= self.gain_high


def step_times_of(calibration: Calibration) -> list[StepTime]:
    """Every step-time model that an answer must hold in."""
    best = calibration.best
    more = [step_time for step_time in (best.slower, best.faster) if step_time is not None]
    return [*(fit.step_time for fit in calibration.fits), *more]


def intervals(case: hidden.Case, known: bool, seed: int = 0) -> Iterator[Interval]:
    """Of every other configuration of a case."""
    observed = hidden.observed_of(case)
    server = case.server if known else replace(case.server, model="acme/unheard-of")
    prior = prior_of(server, observed, case.configuration)
    found = calibrate(observed, case.configuration, prior, at=hidden.AT, seed=seed)
    step_times = step_times_of(found)
    gates = fit_gates(found.best, saturated=ttft_is_skipped(observed), observed=observed)
    answered = found.identifiable and all(gate.passed for gate in gates)
    true, rebuilt = _some(case.requests), _some(observed.requests)
    today = _rates(rebuilt, case.configuration, step_times)
    today_truth = capacity_per_second(true, case.configuration, case.step_time)
    for knob, configuration in hidden.others(case.configuration):
        truth = capacity_per_second(true, configuration, case.step_time)
        said = _rates(rebuilt, configuration, step_times)
        if truth is None or today_truth is None:
            continue
        gains = said / today
        yield Interval(
            f"{case.seed} {case.name}",
            knob,
            float(said.min()),
            float(said.max()),
            truth,
            float(today.min()),
            float(today.max()),
            today_truth,
            float(gains.min()),
            float(gains.max()),
            answered,
        )


def _some(requests: Requests) -> Requests:
    return requests.take(slice(max(0, len(requests) - MOST_REQUESTS), None))


def _rates(
    requests: Requests, configuration: SchedulerConfiguration, step_times: list[StepTime]
) -> np.ndarray:
    return np.array(
        [capacity_per_second(requests, configuration, step_time) or 0.0 for step_time in step_times]
    )


def _by_knob(found: list[Interval]) -> Iterator[str]:
    """Coverage of each change, with how far beyond the interval the truth lies."""
    for knob in sorted({one.knob for one in found}):
        kept = [one for one in found if one.knob == knob]
        held = np.mean([one.holds for one in kept])
        beyond = [max(one.truth / one.high, one.low / one.truth, 1.0) - 1 for one in kept]
        yield f"{knob} {100 * held:.0f} % of {len(kept)}, beyond at most {100 * max(beyond):.0f} %"


def report(shared_data: Path, seed: int, count: int, seconds: float) -> bool:
    """Print coverage and width; whether 80 of 100 intervals hold the truth."""
    good = True
    for known in KNOWN:
        found = [
            one
            for case in hidden.cases(shared_data, seed, count, seconds)
            for one in intervals(case, known)
        ]
        for words, kept in (
            ("answered", [one for one in found if one.answered]),
            ("all", found),
        ):
            if not kept:
                continue
            held = float(np.mean([one.holds for one in kept]))
            gain = float(np.mean([one.gain_holds for one in kept]))
            width = np.log([one.high / one.low for one in kept])
            off = np.abs(np.log([np.sqrt(one.low * one.high) / one.truth for one in kept]))
            servers = len({one.case for one in kept})
            print(
                f"{'datasheet' if known else 'model unknown':14s} {words:10s} "
                f"n {len(kept)} of {servers} servers; interval holds capacity {100 * held:.0f} %, "
                f"gain {100 * gain:.0f} %; width median {100 * np.median(width):.0f} % "
                f"p90 {100 * np.quantile(width, 0.9):.0f} %; "
                f"middle off median {100 * np.median(off):.1f} % "
                f"p90 {100 * np.quantile(off, 0.9):.0f} %"
            )
            good &= words == "all" or held >= 0.8
        print("  " + "; ".join(_by_knob(found)))
    return good
