"""One configuration under one demand: what a simulation says of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from driftwatch.arrays import Flags, Floats, Integers
from driftwatch.model import Slo
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Run, Trial

# Without targets a request is as wanted where it is admitted within a second: what rules call
# waiting (rules/trees/batch-size-drift.yaml asks for more than 1 s of it).
WAIT_SECONDS = 1.0
_SCRAPE_SECONDS = 15.0
# When to look whether the share is settled: parts of the requests' time after the last may miss.
_AFTERWARDS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
_ITL_EDGES = tuple(float(edge) for edge in np.geomspace(5e-4, 60.0, 400))  # cells of 3 %


@dataclass(frozen=True, slots=True)
class Judged:
    """Which requests of a simulation count, and by what."""

    slo: Slo | None  # latency targets; None: by the wait for admission (:data:`WAIT_SECONDS`)
    # requests that arrived from then on count, those before only load the server
    since_seconds: float
    until_seconds: float
    ttft_overhead_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Of the requests that count; None = none finished, or none has it."""

    in_target_ratio: float
    # share of those that finished that meet the TTFT target; None = none
    ttft_in_target_ratio: float | None = None
    tpot_in_target_ratio: float | None = None
    ttft_seconds: float | None = None
    ttft_p95_seconds: float | None = None
    tpot_p95_seconds: float | None = None
    e2e_seconds: float | None = None
    peak_running_requests: int = 0  # most that held a place at a time (from admission to end)
    preemptions: float = 0.0
    # mean over tokens of the window; None where it was not scraped
    itl_seconds: float | None = None
    itl_p99_seconds: float | None = None
    generation_tokens_per_second: float | None = None
    running_requests: float | None = None
    kv_cache_peak_ratio: float | None = None  # over scrapes; None where blocks are unknown
    keeps_up: bool = True  # the wait for admission does not grow from the middle to the end


def simulated(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    judged: Judged,
    *,
    scraped: bool = False,
) -> Measured:
    """Simulate requests and measure those that count.

    ``requests``: sorted by arrival; ``scraped``: with what a scraper would have seen (ITL, running
    requests, KV), which takes a little longer. Raises ImpossibleConfiguration: vLLM would refuse
    the settings, or a request can never be served; NoVerdict: the engine makes no progress.
    """
    observe = None
    if scraped:
        times = np.arange(judged.since_seconds, judged.until_seconds, _SCRAPE_SECONDS)
        observe = Observe(np.append(times, judged.until_seconds), itl_edges=_ITL_EDGES)
    served = Trial(requests, configuration, observe=observe).run(step_time)
    measured = _of_requests(served, judged)
    return _with_scrapes(measured, served) if scraped else measured


def share_simulated(
    requests: Requests, configuration: SchedulerConfiguration, step_time: StepTime, judged: Judged
) -> Measured:
    """``simulated``, but the share in target alone: the simulation ends once it is settled.

    Where a queue only grows most of the time would go into serving what has missed long ago. Raises
    ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be served;
    NoVerdict: the engine makes no progress.
    """
    slo, overhead = judged.slo, judged.ttft_overhead_seconds
    counts = requests.arrival_seconds >= judged.since_seconds
    if not counts.any():
        return Measured(0.0)

    def settled(served: Run) -> bool:
        open_still = ~in_target(served, slo, overhead) & ~missed(served, slo, overhead)
        return not (open_still & counts).any()

    served = Trial(requests, configuration).run(
        step_time, checks=afterwards(requests.arrival_seconds, slo), enough=settled
    )
    return Measured(float(in_target(served, slo, overhead)[counts].mean()))


def afterwards(arrival_seconds: Floats, slo: Slo | None) -> list[float]:
    """Times from which on the last request may have missed its target, rising."""
    last = float(arrival_seconds[-1])
    wait = WAIT_SECONDS if slo is None else slo.ttft_seconds
    if wait is None:
        return []
    return [last + wait + part * last for part in _AFTERWARDS]


def in_target(served: Run, slo: Slo | None, ttft_overhead_seconds: float = 0.0) -> Flags:
    """For each request whether it has finished within every target."""
    return np.asarray(served.finished & _within(served, slo, ttft_overhead_seconds))


def missed(served: Run, slo: Slo | None, ttft_overhead_seconds: float = 0.0) -> Flags:
    """For each request whether it has missed a target, whatever comes."""
    over = served.ended & ~served.finished
    return np.asarray(over | ~_within(served, slo, ttft_overhead_seconds))


def _within(served: Run, slo: Slo | None, overhead: float) -> Flags:
    """For each request whether it meets every target, if what it waits for came at once."""
    arrival, now = served.arrival_seconds, served.now_seconds
    with np.errstate(invalid="ignore"):  # inf - inf: nothing comes any more
        if slo is None:
            wait = np.minimum(served.first_scheduled_seconds, now) - arrival
            return np.asarray(wait <= WAIT_SECONDS)
        meets: Flags = np.ones(len(arrival), dtype=np.bool_)
        ttft = np.minimum(served.first_token_seconds, now) - arrival
        if slo.ttft_seconds is not None:
            meets &= ttft + overhead <= slo.ttft_seconds
        if slo.tpot_seconds is not None:
            more = served.generation_tokens - 1
            later = (np.minimum(served.end_seconds, now) - arrival) - ttft
            meets &= (more < 1) | (later <= slo.tpot_seconds * np.maximum(more, 1))
    return meets


def _of_requests(served: Run, judged: Judged) -> Measured:
    overhead, arrival = judged.ttft_overhead_seconds, served.arrival_seconds
    counts = arrival >= judged.since_seconds
    if not counts.any():
        return Measured(0.0)
    share = float(in_target(served, judged.slo, overhead)[counts].mean())
    finished = counts & served.finished
    if not finished.any():
        return Measured(share)
    arrivals = arrival[finished]
    ttft = served.first_token_seconds[finished] - arrivals
    e2e = served.end_seconds[finished] - arrivals
    queue = served.first_scheduled_seconds[finished] - arrivals
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


def _with_scrapes(measured: Measured, served: Run) -> Measured:
    times = served.scrape_seconds
    if len(times) < 2:
        return measured
    seconds = times[-1] - times[0]
    counted = served.scraped("itl_seconds_count")
    generated = served.scraped("generation_tokens")
    count = int(counted[-1] - counted[0])
    spent = served.scraped("itl_seconds_sum")
    cells, kv = served.itl_cells, served.kv_cache_usage_ratio
    return replace(
        measured,
        itl_seconds=float(spent[-1] - spent[0]) / count if count else None,
        itl_p99_seconds=_of_cells(cells[-1] - cells[0], 0.99) if count else None,
        generation_tokens_per_second=float((generated[-1] - generated[0]) / seconds),
        running_requests=float(served.scraped("running").mean()),
        kv_cache_peak_ratio=None if kv is None else float(kv.max()),
    )


def _of_cells(cells: Integers, share: float) -> float:
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
