"""When the servers and the exporters of a scenario are scraped, and which scrapes bring nothing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from driftwatch.fleet.hidden_engine import generator
from driftwatch.fleet.scenario import Scenario
from driftwatch.fleet.timeline import concerns

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

_DAY_SECONDS = 86_400.0
_GAP_SECONDS = (60.0, 900.0)  # of a Prometheus that restarts, or is out of memory for a while
_LATEST_RATIO = 0.95  # of an interval: a scrape is not later than the next one


def scrape_times(scenario: Scenario, seed: int, number: int) -> tuple[Floats, Booleans]:
    """When a server is scraped, and which of these scrapes time out, over the whole scenario."""
    said = scenario.scrape
    rng = generator(seed, "scrapes", number)
    planned = np.arange(rng.random() * said.interval, scenario.duration, said.interval)
    late = np.abs(rng.standard_normal(len(planned))) * said.jitter_seconds
    times = planned + np.minimum(late, said.interval / 3.0)
    missed = rng.random(len(times))
    ratio = np.full(len(times), said.missed_ratio)
    for fault in scenario.faults:
        if fault.kind == "missed_scrapes" and concerns(fault, number):
            during = (times >= fault.at) & (times < (fault.until or np.inf))
            ratio[during] = fault.ratio or 0.0
    times, kept = _kept(scenario, seed, number, planned, times, "scrapes-kept")
    return times[kept], (missed < ratio)[kept]


def gpu_times(scenario: Scenario, seed: int, number: int) -> Floats:
    """When the exporter of a server's GPUs is scraped."""
    said = scenario.scrape
    if not scenario.pool.dcgm:
        return np.zeros(0)
    if not said.gpu_offset:  # the exporter answers whenever the server is asked, and at once
        return scrape_times(scenario, seed, number)[0]
    rng = generator(seed, "scrapes", number)
    phase = (rng.random() * said.interval + said.gpu_offset) % said.interval
    planned = np.arange(phase, scenario.duration, said.interval)
    times, kept = _kept(scenario, seed, number, planned, planned, "gpu-scrapes-kept")
    return times[kept]


def gaps(scenario: Scenario, seed: int) -> tuple[Floats, Floats]:
    """Stretches in which nothing of the pool is scraped: starts and ends."""
    rng = generator(seed, "gaps")
    count = rng.poisson(scenario.scrape.gaps_per_day * scenario.duration / _DAY_SECONDS)
    start = np.sort(rng.uniform(0.0, scenario.duration, count))
    shortest, longest = np.log(_GAP_SECONDS)
    return start, start + np.exp(rng.uniform(shortest, longest, count))


def _kept(
    scenario: Scenario, seed: int, number: int, planned: Floats, times: Floats, purpose: str
) -> tuple[Floats, Booleans]:
    """Times with the late ones moved, and which of them are kept at all."""
    said = scenario.scrape
    rng = generator(seed, purpose, number)
    late, by, lost = rng.random((3, len(times)))
    moved = np.where(late < said.late_ratio, planned + by * _LATEST_RATIO * said.interval, times)
    times = np.maximum.accumulate(moved)
    kept = (times < scenario.duration) & (lost >= said.lost_ratio)
    kept &= np.diff(times, prepend=-np.inf) > 0.0
    for first, last in zip(*gaps(scenario, seed), strict=True):
        kept &= (times < first) | (times >= last)
    return times, kept
