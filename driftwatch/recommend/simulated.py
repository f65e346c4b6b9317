"""One configuration under one demand: what a simulation says of it, and its capacity.

The capacity of a replica is the highest rate at which the share of requests in target is met: the
window's requests at another pace, found by bisection. Two settings are compared by the intervals of
their rates, narrowed no further than the answer takes. Without targets it is the rate of a
saturated server, and without one for the time to first token no more than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from driftwatch.model import Slo
from driftwatch.simulate import kernel_layout as layout
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe
from driftwatch.simulate.planning_replay import capacity_per_second
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.served import Served, Serving
from driftwatch.simulate.step_time import StepTime

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Without targets a request is as wanted where it is admitted within a second: what rules call
# waiting (rules/trees/batch-size-drift.yaml asks for more than 1 s of it).
WAIT_SECONDS = 1.0
_SCRAPE_SECONDS = 15.0
# When to look whether the share is settled: parts of the requests' time after the last may miss.
_AFTERWARDS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_ITL_EDGES = tuple(float(edge) for edge in np.geomspace(5e-4, 60.0, 400))  # cells of 3 %


@dataclass(frozen=True, slots=True)
class Judged:
    """Which requests of a simulation count, and by what.

    Attributes:
        slo: latency targets; None: by the wait for admission (:data:`WAIT_SECONDS`).
        since_seconds: requests that arrived from then on count, those before only load the
            server.
    """

    slo: Slo | None
    since_seconds: float
    until_seconds: float
    ttft_overhead_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Of the requests that count; None = none finished, or none has it.

    Attributes:
        ttft_in_target_ratio: share of those that finished that meet the TTFT target; None =
            none.
        peak_running_requests: most that held a place at a time (from admission to end).
        itl_seconds: mean over tokens of the window; None where it was not scraped.
        kv_cache_peak_ratio: over scrapes; None where blocks are unknown.
        keeps_up: the wait for admission does not grow from the middle to the end.
    """

    in_target_ratio: float
    ttft_in_target_ratio: float | None = None
    tpot_in_target_ratio: float | None = None
    ttft_seconds: float | None = None
    ttft_p95_seconds: float | None = None
    tpot_p95_seconds: float | None = None
    queue_seconds: float | None = None
    e2e_seconds: float | None = None
    peak_running_requests: int = 0
    preemptions: float = 0.0
    itl_seconds: float | None = None
    itl_p99_seconds: float | None = None
    generation_tokens_per_second: float | None = None
    running_requests: float | None = None
    kv_cache_peak_ratio: float | None = None
    keeps_up: bool = True


def simulated(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    judged: Judged,
    *,
    scraped: bool = False,
) -> Measured:
    """Simulate requests and measure those that count.

    Args:
        requests: sorted by arrival.
        scraped: with what a scraper would have seen (ITL, running requests, KV), which takes a
            little longer.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be
            served.
        NoVerdict: the engine makes no progress.
    """
    observe = None
    if scraped:
        times = np.arange(judged.since_seconds, judged.until_seconds, _SCRAPE_SECONDS)
        observe = Observe(np.append(times, judged.until_seconds), itl_edges=_ITL_EDGES)
    served = Serving(requests, configuration, step_time, observe=observe).run()
    found = _of_requests(served, judged)
    return _with_scrapes(found, served) if scraped else found


def share_simulated(
    requests: Requests, configuration: SchedulerConfiguration, step_time: StepTime, judged: Judged
) -> Measured:
    """``simulated``, but the share in target alone: the simulation ends once it is settled.

    Where a queue only grows most of the time would go into serving what has missed long ago.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be
            served.
        NoVerdict: the engine makes no progress.
    """
    slo, overhead = judged.slo, judged.ttft_overhead_seconds
    counts = requests.arrival_seconds >= judged.since_seconds
    if not counts.any():
        return Measured(0.0)

    def settled(served: Served) -> bool:
        open_still = ~in_target(served, slo, overhead) & ~missed(served, slo, overhead)
        return not (open_still & counts).any()

    served = Serving(requests, configuration, step_time).run(
        checks=afterwards(requests.arrival_seconds, slo), enough=settled
    )
    return Measured(float(in_target(served, slo, overhead)[counts].mean()))


def afterwards(arrival_seconds: Floats, slo: Slo | None) -> list[float]:
    """Times from which on the last request may have missed its target, rising."""
    last = float(arrival_seconds[-1])
    wait = WAIT_SECONDS if slo is None else slo.ttft_seconds
    if wait is None:
        return []
    return [last + wait + part * last for part in _AFTERWARDS]


def in_target(served: Served, slo: Slo | None, ttft_overhead_seconds: float = 0.0) -> Mask:
    """For each request whether it has finished within every target."""
    return np.asarray(served.finished & _within(served, slo, ttft_overhead_seconds))


def missed(served: Served, slo: Slo | None, ttft_overhead_seconds: float = 0.0) -> Mask:
    """For each request whether it has missed a target, whatever comes."""
    over = served.ended & ~served.finished
    return np.asarray(over | ~_within(served, slo, ttft_overhead_seconds))


def _within(served: Served, slo: Slo | None, overhead: float) -> Mask:
    """For each request whether it meets every target, if what it waits for came at once."""
    arrival, now = served.arrival_seconds, served.now_seconds
    with np.errstate(invalid="ignore"):  # inf - inf: nothing comes any more
        if slo is None:
            wait = np.minimum(served.first_scheduled_seconds, now) - arrival
            return np.asarray(wait <= WAIT_SECONDS)
        met: Mask = np.ones(len(arrival), dtype=np.bool_)
        ttft = np.minimum(served.first_token_seconds, now) - arrival
        if slo.ttft_seconds is not None:
            met &= ttft + overhead <= slo.ttft_seconds
        if slo.tpot_seconds is not None:
            more = served.generation_tokens - 1
            later = (np.minimum(served.end_seconds, now) - arrival) - ttft
            met &= (more < 1) | (later <= slo.tpot_seconds * np.maximum(more, 1))
    return met


def _of_requests(served: Served, judged: Judged) -> Measured:
    overhead, arrival = judged.ttft_overhead_seconds, served.arrival_seconds
    counts = arrival >= judged.since_seconds
    if not counts.any():
        return Measured(0.0)
    share = float(in_target(served, judged.slo, overhead)[counts].mean())
    finished = counts & served.finished
    if not finished.any():
        return Measured(share)
    came = arrival[finished]
    ttft = served.first_token_seconds[finished] - came
    e2e = served.end_seconds[finished] - came
    queue = served.first_scheduled_seconds[finished] - came
    more = served.generation_tokens[finished] - 1
    tpot = (e2e - ttft)[more > 0] / more[more > 0]
    slo = judged.slo or Slo()
    return Measured(
        share,
        ttft_in_target_ratio=_share_within(ttft + overhead, slo.ttft_seconds),
        tpot_in_target_ratio=_share_within(tpot, slo.tpot_seconds),
        ttft_seconds=float(ttft.mean()) + overhead,
        ttft_p95_seconds=float(np.quantile(ttft, 0.95)) + overhead,
        tpot_p95_seconds=float(np.quantile(tpot, 0.95)) if len(tpot) else None,
        queue_seconds=float(queue.mean()),
        e2e_seconds=float(e2e.mean()) + overhead,
        peak_running_requests=_peak(
            served.first_scheduled_seconds[served.first_scheduled_seconds < np.inf],
            served.end_seconds[served.end_seconds < np.inf],
        ),
        preemptions=float(served.preemptions[finished].mean()),
        keeps_up=_keeps_up(queue),
    )


def _share_within(values: Floats, aim: float | None) -> float | None:
    return None if aim is None or not len(values) else float((values <= aim).mean())


def _keeps_up(queue: Floats) -> bool:
    """The last quarter, by arrival, waits no more than a second or twice as long as the second."""
    quarter = len(queue) // 4
    if not quarter:
        return True
    before, after = queue[quarter : 2 * quarter].mean(), queue[-quarter:].mean()
    return bool(after <= max(WAIT_SECONDS, 1.5 * before))


def _peak(starts: Floats, ends: Floats) -> int:
    """Most intervals that overlap; one that ends where another starts does not."""
    if not len(starts):
        return 0
    before = np.searchsorted(np.sort(ends), np.sort(starts), side="right")
    return int((np.arange(1, len(starts) + 1) - before).max())


def _with_scrapes(found: Measured, served: Served) -> Measured:
    times = served.scrape_seconds
    if len(times) < 2:
        return found
    seconds = times[-1] - times[0]
    counted = served.counter(layout.ITL_COUNT)
    generated = served.counter(layout.GENERATION_TOKENS)
    count = int(counted[-1] - counted[0])
    spent = served.itl_seconds_sum
    cells, kv = served.itl_cells, served.kv_cache_usage_ratio
    return replace(
        found,
        itl_seconds=float(spent[-1] - spent[0]) / count if count else None,
        itl_p99_seconds=_of_cells(cells[-1] - cells[0], 0.99) if count else None,
        generation_tokens_per_second=float((generated[-1] - generated[0]) / seconds),
        running_requests=float(served.running.mean()),
        kv_cache_peak_ratio=None if kv is None else float(kv.max()),
    )


def _of_cells(cells: npt.NDArray[np.int64], share: float) -> float:
    """A quantile from counts by cell, interpolated inside its cell."""
    total = np.cumsum(cells)
    wanted = share * total[-1]
    at = int(np.searchsorted(total, wanted))
    if at >= len(_ITL_EDGES):
        return _ITL_EDGES[-1]
    low = _ITL_EDGES[at - 1] if at else 0.0
    below = float(total[at - 1]) if at else 0.0
    inside = (wanted - below) / max(float(cells[at]), 1.0)
    return float(low + (_ITL_EDGES[at] - low) * inside)


Bounds = Iterator[tuple[float, float]]

_WARM_SHARE = 0.1  # the server starts empty
_LOOKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the requests: is the share settled?
_TOLERANCE = 0.015  # of the rate
_LEAST_SCALE, _MOST_SCALE = 1 / 64, 64.0
_FIRST_STEP = 1.1  # from a rate that may be near; each further one is its square


@dataclass(slots=True, eq=False)
class Narrowing:
    """A rate between ``low`` and ``high``, requests a second; equal once it is known."""

    low: float = 0.0
    high: float = math.inf
    steps: Bounds = field(default_factory=lambda: iter(()))

    @classmethod
    def known(cls, rate: float) -> Narrowing:
        """A rate that need not be looked for."""
        return cls(rate, rate)

    def narrow(self) -> None:
        """One simulation more."""
        following = next(self.steps, None)
        self.low, self.high = (self.low, self.low) if following is None else following

    def settled(self) -> float:
        """The rate, to :data:`_TOLERANCE`."""
        while self.low < self.high:
            self.narrow()
        return self.low

    def is_below(self, rate: float) -> bool:
        """Whether it is, narrowed no further than that takes."""
        while self.low < rate < self.high:
            self.narrow()
        return self.low < rate


def nearly_best(rates: Sequence[Narrowing], enough: float, ties: float) -> list[bool]:
    """For each whether it comes within ``ties`` (a ratio) of the largest."""
    while True:
        lows = [min(rate.low, enough) for rate in rates]
        highs = [min(rate.high, enough) for rate in rates]
        surely, perhaps = max(lows) * (1 - ties), max(highs) * (1 - ties)
        unclear = [
            rate
            for rate, low, high in zip(rates, lows, highs, strict=True)
            if low < high and (high == max(highs) or not (high < surely or low >= perhaps))
        ]
        if not unclear or all(
            high < surely or low >= perhaps for low, high in zip(lows, highs, strict=True)
        ):
            return [low >= surely for low in lows]
        max(unclear, key=lambda rate: rate.high - rate.low).narrow()


def narrowing(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    slo: Slo,
    near: float | None,
    overhead: float,
) -> Narrowing:
    """The rate up to which the share is met, 0 where no rate meets it.

    Args:
        requests: to be served at another pace; sorted by arrival, on a clock of their own.
        near: requests a second to start from; None = as observed.
        overhead: seconds of every request outside the steps.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be
            served.
    """
    observed = rate_of(requests)
    serving = Serving(requests, configuration, step_time)
    first = int(len(requests) * _WARM_SHARE)
    arrival, count = requests.arrival_seconds, len(requests) - first
    looks = arrival[[int(part * len(arrival)) for part in _LOOKS]]

    def met(scale: float) -> bool:
        def settled(served: Served) -> bool:
            hits = int(in_target(served, slo, overhead)[first:].sum())
            misses = int(missed(served, slo, overhead)[first:].sum())
            return hits / count >= slo.share or (count - misses) / count < slo.share

        checks = [*(looks / scale), *afterwards(arrival / scale, slo)]
        served = serving.run(scale, checks=checks, enough=settled)
        return bool(in_target(served, slo, overhead)[first:].mean() >= slo.share)

    def rates() -> Bounds:
        for low, high in _bisected(met, (near / observed) if near else 1.0):
            yield low * observed, high * observed

    return Narrowing(steps=rates())


def _bisected(met: Callable[[float], bool], near: float) -> Bounds:
    """Bounds of the largest scale that is met; the last of them is known to the tolerance."""
    scale = min(max(near, _LEAST_SCALE), _MOST_SCALE)
    low, high, step = 0.0, math.inf, _FIRST_STEP
    if met(scale):
        low = scale
        yield low, high
        while (tried := min(low * step, _MOST_SCALE)) > low and met(tried):
            low, step = tried, step * step
            yield low, high
        if tried <= low:
            return
        high = tried
    else:
        high = scale
        yield low, high
        while (tried := max(high / step, _LEAST_SCALE)) < high and not met(tried):
            high, step = tried, step * step
            yield low, high
        if tried >= high:
            return
        low = tried
    yield low, high
    while high / low > 1 + _TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if met(middle) else (low, middle)
        yield low, high


def rate_of(requests: Requests) -> float:
    """Requests a second between the first and the last."""
    span = float(requests.arrival_seconds[-1] - requests.arrival_seconds[0])
    return (len(requests) - 1) / span if span > 0 else math.inf


FEWEST_REQUESTS = 20
MOST_REQUESTS = 3000  # of a simulation: their share in target is known to a point


@dataclass(frozen=True, slots=True)
class Capacity:
    """Requests a second of one replica; None = too few requests.

    Attributes:
        none_meets: no step-time model meets the share at any rate: a request alone misses the
            target.
    """

    mean: float | None
    low: float | None
    high: float | None
    none_meets: bool = False
    rates: tuple[float, ...] = ()


def capacity(
    requests: Requests,
    configurations: Sequence[SchedulerConfiguration],
    step_times: Sequence[StepTime],
    slo: Slo | None,
    *,
    near: float | None = None,
    ttft_overhead_seconds: Sequence[float] | None = None,
) -> Capacity:
    """Capacity by each step-time model, under the configuration beside it.

    Args:
        requests: a stretch of the traffic, sorted by arrival.
        slo: targets; None = the rate of a saturated server.
        near: requests a second to start the search from; None = as observed.
        ttft_overhead_seconds: of every request outside the steps, one for each step-time model;
            None = 0.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be
            served.
    """
    some = stretch(requests)
    if len(some) < FEWEST_REQUESTS:
        return Capacity(None, None, None)
    found: list[float] = []
    overheads = [0.0] * len(step_times) if ttft_overhead_seconds is None else ttft_overhead_seconds
    for configuration, step_time, overhead in zip(
        configurations, step_times, overheads, strict=True
    ):
        rate = rate_within(
            some, configuration, step_time, slo, near=near, overhead=overhead
        ).settled()
        if slo is None and not rate:
            continue
        found.append(rate)
        near = rate or near
    if not found:
        return Capacity(None, None, None)
    if max(found) == 0.0:
        return Capacity(0.0, 0.0, 0.0, none_meets=True, rates=tuple(found))
    return Capacity(sum(found) / len(found), min(found), max(found), rates=tuple(found))


def rate_within(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    slo: Slo | None,
    *,
    near: float | None = None,
    overhead: float = 0.0,
) -> Narrowing:
    """Capacity of a :func:`stretch` by one step-time model, to be narrowed; 0 where there is none.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be
            served.
    """
    if len(requests) < FEWEST_REQUESTS:
        return Narrowing.known(0.0)
    most = None
    if slo is None or slo.ttft_seconds is None:
        # a time per token holds while the queue grows for ever: what is served counts
        most = capacity_per_second(requests, configuration, step_time)
    if slo is None:
        return Narrowing.known(most or 0.0)
    found = narrowing(requests, configuration, step_time, slo, near, overhead)
    return found if most is None else Narrowing.known(min(found.settled(), most))


def stretch(requests: Requests, most: int = MOST_REQUESTS) -> Requests:
    """The last requests on a clock of their own; those that were there at its start left out."""
    later = requests.take(requests.arrival_seconds > 0.0)
    some = later.take(slice(max(0, len(later) - most), None))
    if not len(some):
        return some
    first = some.arrival_seconds[0]
    return replace(
        some,
        arrival_seconds=some.arrival_seconds - first,
        cancel_seconds=np.full(len(some), np.inf),
    )
