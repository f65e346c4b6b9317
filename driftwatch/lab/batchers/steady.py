"""What a run says once it is warm and before it drains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftwatch.lab.batchers.clock import CANCELLED, FINISHED, Batched, step_seconds
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

Floats = npt.NDArray[np.float64]

WARM_UP, DRAIN = 0.2, 0.1
DEFINITION = (
    "steady part: the first fifth and the last tenth of the time over which requests arrive are "
    "left out. Throughput counts requests that finish in it, latency those that arrive in it and "
    "finish."
)
BEHIND = 0.05
_NEEDED = {0.5: 1, 0.99: 100, 0.999: 1000}


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds over requests; None where too few back a quantile (``reason`` says so)."""

    count: int
    p50: float | None
    p99: float | None
    p999: float | None
    max: float | None
    mean: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady part of one run."""

    seconds: float  # how long it is
    offered_requests_per_second: float  # arrivals in it
    throughput_requests_per_second: float  # requests that finish in it
    throughput_generation_tokens_per_second: float  # their tokens
    # of those, the ones within the limit on end-to-end time; None without a limit
    goodput_requests_per_second: float | None
    # of the arrivals at most 5 % and one batch are missing among those that finished or were
    # cancelled by their clients (a time-out or a refusal is not served)
    keeps_up: bool
    e2e: Latency  # arrival to last token, of those that finish
    ttft: Latency  # arrival to first token, of those that finish
    ended_otherwise: dict[str, int]  # status → requests that arrived in it and did not finish


def steady(
    batched: Batched, *, batch_size: int = 1, limit_seconds: float | None = None
) -> Steady | None:
    """Measure a run served to its end; None where all requests arrive at one time.

    ``batch_size``: requests that leave together, so many may be missing at the end of the steady
    part; ``limit_seconds``: end-to-end time that counts as good.
    """
    table = batched.requests
    arrival = table["arrival_seconds"].to_numpy()
    if not len(arrival) or arrival.max() == arrival.min():
        return None
    span = float(arrival.max() - arrival.min())
    since = float(arrival.min()) + WARM_UP * span
    until = float(arrival.max()) - DRAIN * span
    seconds = until - since
    end = table["end_seconds"].fill_null(np.inf).to_numpy()
    finished = (table["status"] == FINISHED).to_numpy()
    e2e = table["e2e_seconds"].fill_null(np.nan).to_numpy()
    arrived = (arrival >= since) & (arrival < until)
    ended = (end >= since) & (end < until)
    good = ended & finished
    served = ended & table["status"].is_in([FINISHED, CANCELLED]).to_numpy()
    grown = int(arrived.sum()) - int(served.sum())
    others = table.filter(arrived & ~finished)["status"].value_counts(sort=True).rows()
    within = None if limit_seconds is None else float((good & (e2e <= limit_seconds)).sum())
    return Steady(
        seconds=seconds,
        offered_requests_per_second=float(arrived.sum()) / seconds,
        throughput_requests_per_second=float(good.sum()) / seconds,
        throughput_generation_tokens_per_second=float(
            table["generated_tokens"].to_numpy()[good].sum() / seconds
        ),
        goodput_requests_per_second=None if within is None else within / seconds,
        keeps_up=bool(grown <= BEHIND * arrived.sum() + batch_size),
        e2e=latency(e2e[arrived & finished]),
        ttft=latency(table["ttft_seconds"].fill_null(np.nan).to_numpy()[arrived & finished]),
        ended_otherwise={str(name): int(number) for name, number in sorted(others)},
    )


def latency(seconds: Floats) -> Latency:
    """Quantiles, largest and mean; a quantile q needs at least 1 / (1 − q) requests."""
    count = len(seconds)
    if not count:
        return Latency(0, None, None, None, None, None, "no request finished")
    quantiles = {
        q: float(np.quantile(seconds, q)) if count >= need else None for q, need in _NEEDED.items()
    }
    lacking = [f"p{100 * q:g} needs {n:,}" for q, n in _NEEDED.items() if count < n]
    reason = f"{count:,} requests: {', '.join(lacking)}" if lacking else ""
    p50, p99, p999 = quantiles.values()
    return Latency(count, p50, p99, p999, float(seconds.max()), float(seconds.mean()), reason)


def saturated_rate(batched: Batched) -> float | None:
    """Finished requests per second while there is always more to do.

    Of a run whose requests are all there at the start: between the ends of the first tenth and of
    nine tenths of them, batch for batch. None where everything ends at one time.
    """
    table = batched.requests
    ends = np.sort(table.filter(table["status"] == FINISHED)["end_seconds"].to_numpy())
    if len(ends) < 2:
        return None
    first, last = ends[len(ends) // 10], ends[(9 * len(ends)) // 10 - 1]
    if last <= first:
        return None
    return float(((ends > first) & (ends <= last)).sum() / (last - first))


def alone_seconds(requests: Requests, step_time: StepTime) -> Floats:
    """Each request's end-to-end time on an empty server, its prompt in one step."""
    prompt = requests.prompt_tokens.astype(np.float64)
    more = requests.generation_tokens.astype(np.float64) - 1
    first = step_seconds(step_time, prompt, 0, 0, prompt * (prompt + 1) / 2)
    one = float(step_seconds(step_time, 0, 1, 0))
    context = more * prompt + more * (more + 1) / 2
    return np.asarray(first + more * one + step_time.c3_seconds_per_kv_token * context)
