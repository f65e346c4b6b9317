"""One configuration under one demand: what a replay says of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from driftwatch.model import Slo
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe, simulate
from driftwatch.simulate.outcome import Outcome
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Without targets a request is as wanted where it is admitted within a second: what rules call
# waiting (rules/trees/batch-size-drift.yaml asks for more than 1 s of it).
WAIT_SECONDS = 1.0
_SCRAPE_SECONDS = 15.0
_ITL_EDGES = tuple(float(edge) for edge in np.geomspace(5e-4, 60.0, 400))  # cells of 3 %


@dataclass(frozen=True, slots=True)
class Judged:
    """Which requests of a replay count, and by what.

    Attributes:
        slo: latency targets; None: by the wait for admission (:data:`WAIT_SECONDS`).
        since_seconds: requests that arrived from then on count, those before only load the server.
        until_seconds: end of the observed window.
        ttft_overhead_seconds: of every request, outside the steps.
    """

    slo: Slo | None
    since_seconds: float
    until_seconds: float
    ttft_overhead_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Of the requests that count; None = none finished, or none has it.

    Attributes:
        in_target_ratio: share that finished within every target.
        ttft_seconds: mean.
        ttft_p95_seconds: over requests.
        tpot_p95_seconds: over requests of two tokens and more.
        queue_seconds: mean wait for the first admission.
        e2e_seconds: mean.
        peak_running_requests: most that held a place at a time (from admission to end).
        preemptions: a finished request.
        itl_seconds: mean over tokens of the window; None where it was not scraped.
        itl_p99_seconds: of cells 3 % wide.
        generation_tokens_per_second: over the window.
        running_requests: mean over scrapes.
        kv_cache_peak_ratio: over scrapes; None where blocks are unknown.
        keeps_up: the wait for admission does not grow from the middle to the end.
    """

    in_target_ratio: float
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


def replayed(
    requests: Requests,
    configuration: SchedulerConfiguration,
    law: StepTime,
    judged: Judged,
    *,
    scraped: bool = False,
) -> Measured:
    """Replay requests and measure those that count.

    Args:
        requests: sorted by arrival.
        configuration: settings.
        law: step time.
        judged: which count.
        scraped: with what a scraper would have seen (ITL, running requests, KV), which takes a
            little longer.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request can never be served.
        NoVerdict: the engine makes no progress.
    """
    observe = None
    if scraped:
        times = np.arange(judged.since_seconds, judged.until_seconds, _SCRAPE_SECONDS)
        observe = Observe(np.append(times, judged.until_seconds), itl_edges=_ITL_EDGES)
    outcome = simulate(requests, configuration, law, observe=observe)
    found = _of_requests(outcome, judged)
    return _with_scrapes(found, outcome, judged) if scraped else found


def in_target(outcome: Outcome, slo: Slo | None, ttft_overhead_seconds: float = 0.0) -> Mask:
    """For each row of ``Outcome.requests`` whether it finished within every target."""
    rows = outcome.requests
    met: Mask = np.asarray(rows["status"] == "finished", dtype=np.bool_)
    if slo is None:
        wait = rows["queue_seconds"].to_numpy()
        met &= np.nan_to_num(wait, nan=np.inf) <= WAIT_SECONDS
        return met
    ttft = np.nan_to_num(rows["ttft_seconds"].to_numpy(), nan=np.inf)
    if slo.ttft_seconds is not None:
        met &= ttft + ttft_overhead_seconds <= slo.ttft_seconds
    if slo.tpot_seconds is not None:
        more = rows["generated_tokens"].to_numpy() - 1
        later = np.nan_to_num(rows["e2e_seconds"].to_numpy(), nan=np.inf) - ttft
        met &= (more < 1) | (later <= slo.tpot_seconds * np.maximum(more, 1))
    return met


def _of_requests(outcome: Outcome, judged: Judged) -> Measured:
    rows, overhead = outcome.requests, judged.ttft_overhead_seconds
    counts = rows["arrival_seconds"].to_numpy() >= judged.since_seconds
    if not counts.any():
        return Measured(0.0)
    share = float(in_target(outcome, judged.slo, overhead)[counts].mean())
    finished = counts & (rows["status"] == "finished").to_numpy()
    if not finished.any():
        return Measured(share)
    ttft = rows["ttft_seconds"].to_numpy()[finished]
    e2e = rows["e2e_seconds"].to_numpy()[finished]
    more = rows["generated_tokens"].to_numpy()[finished] - 1
    tpot = (e2e - ttft)[more > 0] / more[more > 0]
    return Measured(
        share,
        float(ttft.mean()) + overhead,
        float(np.quantile(ttft, 0.95)) + overhead,
        float(np.quantile(tpot, 0.95)) if len(tpot) else None,
        float(rows["queue_seconds"].to_numpy()[finished].mean()),
        float(e2e.mean()) + overhead,
        _peak(
            rows["first_scheduled_seconds"].drop_nulls().to_numpy(),
            rows["end_seconds"].drop_nulls().to_numpy(),
        ),
        float(rows["preemptions"].to_numpy()[finished].mean()),
        keeps_up=_keeps_up(rows["queue_seconds"].to_numpy()[finished]),
    )


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


def _with_scrapes(found: Measured, outcome: Outcome, judged: Judged) -> Measured:
    scrapes = outcome.scrapes
    if scrapes is None or scrapes.height < 2:
        return found
    first, last = scrapes.row(0, named=True), scrapes.row(-1, named=True)
    seconds = last["time_seconds"] - first["time_seconds"]
    count = last["itl_seconds_count"] - first["itl_seconds_count"]
    cells = np.diff(
        np.array(last["itl_seconds_buckets"]) - np.array(first["itl_seconds_buckets"]), prepend=0
    )
    kv = scrapes["kv_cache_usage_ratio"].max()
    generated = last["generation_tokens"] - first["generation_tokens"]
    running = scrapes["running"].mean()
    return replace(
        found,
        itl_seconds=(last["itl_seconds_sum"] - first["itl_seconds_sum"]) / count if count else None,
        itl_p99_seconds=_of_cells(cells, 0.99) if count else None,
        generation_tokens_per_second=generated / seconds,
        running_requests=float(running) if isinstance(running, int | float) else None,
        kv_cache_peak_ratio=float(kv) if isinstance(kv, int | float) else None,
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
