"""Simulate the scheduler with other settings, in each draw of what is unknown.

A draw has its own step-time model, minutes of traffic, prefix hits and demand. All settings serve
the same draws (common random numbers). Each simulation begins with an empty server, as a change
restarts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from driftwatch.arrays import Flags, Floats
from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.model import Slo
from driftwatch.recommend.server import Knobs
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.demand import capacity_per_second
from driftwatch.simulate.engine import Observe
from driftwatch.simulate.outcome import Run
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Trial

# Without latency targets a request is in target if it is admitted within a second.
WAIT_SECONDS = 1.0
WARM_SHARE = 0.1  # of the time, and of the requests of a search for the capacity
# A change is judged by an hour. A draw may be shorter: the last third of it then stands for the
# rest of the hour, because a queue that grows leaves nothing in target.
HORIZON_SECONDS = 3600.0
_LATE_SHARE = 1 / 3
# Checks whether every request is decided: after the last may have missed, in parts of the draw.
_AFTERWARDS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_ITL_EDGES = tuple(float(edge) for edge in np.geomspace(5e-4, 60.0, 400))  # cells of 3 %
_SCRAPES = 200
_STEADY = 1.4  # times the queue of the middle third: one that only grows has 1.55 in the last
IMPOSSIBLE = -1.0  # share in target of settings that some draw cannot run


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One way things may be."""

    requests: Requests
    seconds: float
    step_time: StepTime
    configuration: SchedulerConfiguration  # today's
    demand: float  # times the observed
    ttft_overhead_seconds: float = 0.0  # what passes outside the steps before a first token

    @property
    def counts(self) -> Flags:
        """Requests that are judged: those before only load the server."""
        return np.asarray(self.requests.arrival_seconds >= WARM_SHARE * self.seconds)


WithKnobs = Callable[[SchedulerConfiguration, Knobs], SchedulerConfiguration]


class Outlook:
    """Shares in target of settings in every draw; each simulation is run once.

    Args:
        draws: the first of them is the likeliest.
        slo: latency targets; None = admission within :data:`WAIT_SECONDS`.
        with_knobs: today's settings and knobs → settings.
    """

    def __init__(self, draws: Sequence[Draw], slo: Slo | None, with_knobs: WithKnobs) -> None:
        self.draws, self.slo, self.with_knobs = draws, slo, with_knobs
        self._shares: dict[tuple[int, tuple[tuple[str, float], ...]], float] = {}

    def share(self, number: int, knobs: Knobs) -> float:
        """Share in target in one draw; :data:`IMPOSSIBLE` where it cannot be run."""
        key = (number, tuple(sorted(knobs.items())))
        if key not in self._shares:
            draw = self.draws[number]
            try:
                settings = self.with_knobs(draw.configuration, knobs)
                self._shares[key] = share_in_target(draw, settings, self.slo)
            except (ImpossibleConfiguration, NoVerdict):
                self._shares[key] = IMPOSSIBLE
        return self._shares[key]

    def shares(self, knobs: Knobs, which: Iterable[int] | None = None) -> Floats:
        """Share in target in the draws ``which``; None = in all draws."""
        numbers = range(len(self.draws)) if which is None else which
        return np.array([self.share(number, knobs) for number in numbers])

    def gains(self, knobs: Knobs, which: Sequence[int] | None = None) -> Floats:
        """Share in target over today's, draw by draw."""
        return self.shares(knobs, which) - self.shares({}, which)


def within(run: Run, slo: Slo | None, overhead: float = 0.0) -> Flags:
    """For each request whether it can still meet every target: tokens to come are taken as now."""
    arrival, now = run.arrival_seconds, run.now_seconds
    with np.errstate(invalid="ignore"):  # inf - inf: nothing comes any more
        if slo is None:
            wait = np.minimum(run.first_scheduled_seconds, now) - arrival
            return np.asarray(wait <= WAIT_SECONDS)
        meets: Flags = np.ones(len(arrival), dtype=np.bool_)
        ttft = np.minimum(run.first_token_seconds, now) - arrival
        if slo.ttft_seconds is not None:
            meets &= ttft + overhead <= slo.ttft_seconds
        if slo.tpot_seconds is not None:
            more = run.generation_tokens - 1
            later = (np.minimum(run.end_seconds, now) - arrival) - ttft
            meets &= (more < 1) | (later <= slo.tpot_seconds * np.maximum(more, 1))
    return meets


def share_in_target(draw: Draw, configuration: SchedulerConfiguration, slo: Slo | None) -> float:
    """Share of the judged requests that finish within every target, over an hour.

    The simulation ends once all are settled. Raises ImpossibleConfiguration, NoVerdict.
    """
    counts, overhead = draw.counts, draw.ttft_overhead_seconds
    if not counts.any():
        return 0.0

    def settled(run: Run) -> bool:
        return bool((run.ended | ~within(run, slo, overhead))[counts].all())

    checks = _checks(draw.requests.arrival_seconds, slo)
    run = Trial(draw.requests, configuration).run(draw.step_time, checks=checks, enough=settled)
    meets = run.finished & within(run, slo, overhead)
    late = counts & (draw.requests.arrival_seconds >= (1 - _LATE_SHARE) * draw.seconds)
    simulated = min(1.0, draw.seconds / HORIZON_SECONDS)
    goes_on = float(meets[late].mean()) if late.any() else 0.0
    return simulated * float(meets[counts].mean()) + (1 - simulated) * goes_on


def _checks(arrival_seconds: Floats, slo: Slo | None) -> list[float]:
    """Times from which on the last request may have missed its target, rising."""
    last = float(arrival_seconds[-1])
    wait = WAIT_SECONDS if slo is None else (slo.ttft_seconds or 0.0)
    return [last + wait + part * last for part in _AFTERWARDS]


def figures(draw: Draw, configuration: SchedulerConfiguration) -> dict[str, float | None]:
    """What a scraper would see of one draw, by the names of a Candidate; None = no request
    finished, or unknown; ``keeps_up``: 1 where the queue does not grow from the middle to the end.
    Raises ImpossibleConfiguration, NoVerdict.
    """
    begin = WARM_SHARE * draw.seconds
    observe = Observe(np.linspace(begin, draw.seconds, _SCRAPES), itl_edges=_ITL_EDGES)
    run = Trial(draw.requests, configuration, observe=observe).run(
        draw.step_time, until_seconds=draw.seconds
    )

    def grown(name: str) -> float:
        return float(run.scraped(name)[-1] - run.scraped(name)[0])

    first = draw.counts & np.isfinite(run.first_token_seconds)
    ttft = run.first_token_seconds[first] - run.arrival_seconds[first] + draw.ttft_overhead_seconds
    more = run.generation_tokens - 1
    done = draw.counts & run.finished & (more > 0) & np.isfinite(run.first_token_seconds)
    tpot = (run.end_seconds[done] - run.first_token_seconds[done]) / more[done]
    tokens = grown("itl_seconds_count")
    usage = run.kv_cache_usage_ratio
    return {
        "ttft_seconds": float(ttft.mean()) if len(ttft) else None,
        "ttft_p95_seconds": float(np.quantile(ttft, 0.95)) if len(ttft) else None,
        "tpot_p95_seconds": float(np.quantile(tpot, 0.95)) if len(tpot) else None,
        "itl_seconds": grown("itl_seconds_sum") / tokens if tokens else None,
        "itl_p99_seconds": _cell_quantile(run, 0.99) if tokens else None,
        "generation_tokens_per_second": grown("generation_tokens") / (draw.seconds - begin),
        "running_requests": float(run.scraped("running").mean()),
        "kv_cache_peak_ratio": None if usage is None else float(usage.max()),
        "preemptions": grown("preemptions"),
        "keeps_up": float(_keeps_up(run, len(draw.requests) / draw.seconds)),
    }


def _cell_quantile(run: Run, quantile: float) -> float:
    """A quantile of inter-token times: the edge of its cell."""
    cells = np.cumsum(run.itl_cells[-1] - run.itl_cells[0])
    place = int(np.searchsorted(cells, quantile * cells[-1]))
    return float(_ITL_EDGES[min(place, len(_ITL_EDGES) - 1)])


def _keeps_up(run: Run, requests_per_second: float) -> bool:
    third = len(run.waiting) // 3
    middle, end = run.waiting[third : 2 * third].mean(), run.waiting[-third:].mean()
    return bool(end <= max(_STEADY * middle, WAIT_SECONDS * requests_per_second))


_FEWEST_REQUESTS = 20
_MOST_REQUESTS = 3000  # of a simulation: their share in target is known to a point
_LOOKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the requests: is the share settled?
_LASTING = 4  # times what can run together: fewer requests never fill a server for long
_TOLERANCE = 0.02  # of the rate
_LEAST_SCALE, _MOST_SCALE = 1e-3, 1e4
_FIRST_STEP = 1.15  # from a rate that may be near; each further one is its square


def capacity(
    draw: Draw, configuration: SchedulerConfiguration, slo: Slo | None, near: float | None = None
) -> float | None:
    """Requests a second of one replica up to which the share in target is met; 0 = at no rate.

    The draw's requests come at another pace. Without targets it is what a saturated server
    completes, and without one for the time to first token at most that. ``near``: where to begin to
    look. None = too few requests, or the settings cannot run.
    """
    requests = draw.requests.take(slice(_MOST_REQUESTS))
    if len(requests) < _FEWEST_REQUESTS:
        return None
    try:
        most, few = None, len(requests) < _LASTING * configuration.max_num_seqs
        if slo is None or slo.ttft_seconds is None or few:
            # a time per token holds while the queue grows for ever, and few requests never queue:
            # what is served counts
            most = capacity_per_second(requests, configuration, draw.step_time)
        if slo is None:
            return most
        rate = _within_targets(requests, configuration, draw, slo, near)
    except (ImpossibleConfiguration, NoVerdict):
        return None
    return rate if most is None else min(rate, most)


def _within_targets(
    requests: Requests,
    configuration: SchedulerConfiguration,
    draw: Draw,
    slo: Slo,
    near: float | None,
) -> float:
    arrival = requests.arrival_seconds
    observed = (len(arrival) - 1) / max(float(arrival[-1] - arrival[0]), 1e-9)
    first = int(len(arrival) * WARM_SHARE)
    count, overhead = len(arrival) - first, draw.ttft_overhead_seconds
    trial = Trial(requests, configuration)
    looks = arrival[[int(part * len(arrival)) for part in _LOOKS]]

    def meets(scale: float) -> bool:
        def settled(run: Run) -> bool:
            inside = within(run, slo, overhead)
            hits = int((run.finished & inside)[first:].sum())
            misses = int(((run.ended & ~run.finished) | ~inside)[first:].sum())
            return hits / count >= slo.share or (count - misses) / count < slo.share

        checks = [*(looks / scale), *_checks(arrival / scale, slo)]
        run = trial.run(draw.step_time, pace=scale, checks=checks, enough=settled)
        hits = (run.finished & within(run, slo, overhead))[first:]
        return bool(hits.mean() >= slo.share)

    return observed * _bisected(meets, near / observed if near else 1.0)


def _bisected(meets: Callable[[float], bool], near: float) -> float:
    """The largest scale that is met, to the tolerance; 0 where none is."""
    scale, step = min(max(near, _LEAST_SCALE), _MOST_SCALE), _FIRST_STEP
    if meets(scale):
        low, high = scale, scale * step
        while high < _MOST_SCALE and meets(high):
            step *= step
            low, high = high, high * step
    else:
        low, high = scale / step, scale
        while low > _LEAST_SCALE and not meets(low):
            step *= step
            low, high = low / step, low
        if low <= _LEAST_SCALE:
            return 0.0
    while high / low > 1 + _TOLERANCE:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low
