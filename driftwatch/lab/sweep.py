"""Closed loop at rising concurrency: what each level gave, and where latency starts to degrade.

One set of formulas for a simulated server and a live one. At a fixed concurrency N Little's law
ties throughput X and mean latency R together, N = X · R: what more concurrency does not bring in
throughput it costs in latency. The share that becomes throughput is the elasticity
d ln X / d ln N: 1 while every further user is served as fast as before, 0 once the server is
saturated (Denning and Buzen, "The operational analysis of queueing network models", 1978).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import simulate
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

GAIN = 0.5  # below it a step of concurrency costs more latency than it brings throughput
DEFINITION = (
    "latency starts to degrade at the first level from which more than half of the added users "
    "turns into latency instead of throughput: d ln(requests/s) / d ln(users) "
    f"below {GAIN:g}, and at the next level where there is one"
)


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """Requests of one level, any order; all arrays of one length."""

    start_seconds: Floats  # when each was sent
    first_token_seconds: Floats  # when its first token came, NaN where none did
    end_seconds: Floats  # when it ended, one way or the other
    prompt_tokens: Floats  # of its prompt; NaN where the server did not say
    generation_tokens: Floats  # that were delivered; NaN where the server did not say
    failures: tuple[str, ...]  # why it did not finish, "" where it did

    def __len__(self) -> int:
        return len(self.start_seconds)


@dataclass(frozen=True, slots=True)
class Level:
    """What one concurrency gave over its steady part; None = unknown, ``reasons`` says why.

    ``gain_ratio`` is the elasticity against the level before; ``client_busy_ratio`` the share of
    a core that a live client used itself. Quantiles are of requests; one that
    fewer requests than 1 / (1 - q) stand behind is unknown.
    """

    concurrency: int
    sent_requests: int
    steady_requests: int
    steady_seconds: float
    failed_requests: Mapping[str, int]
    requests_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    generation_tokens_per_second_per_user: float | None = None
    prompt_tokens_per_second: float | None = None
    ttft_seconds_p50: float | None = None
    ttft_seconds_p99: float | None = None
    itl_seconds_mean: float | None = None
    tpot_seconds_p99: float | None = None
    e2e_seconds_mean: float | None = None
    e2e_seconds_p50: float | None = None
    e2e_seconds_p99: float | None = None
    e2e_seconds_p999: float | None = None
    e2e_seconds_max: float | None = None
    gain_ratio: float | None = None
    client_busy_ratio: float | None = None
    reasons: Mapping[str, str] | None = None


_COUNTS = ("concurrency", "sent_requests", "steady_requests", "steady_seconds", "failed_requests")
_NOT_MEASURED = (*_COUNTS, "gain_ratio", "client_busy_ratio", "reasons")
_FIGURES = tuple(one.name for one in fields(Level) if one.name not in _NOT_MEASURED)


@dataclass(frozen=True, slots=True)
class Degradation:
    """Where latency starts to degrade."""

    holds_to: int | None  # the last concurrency before it; None = no verdict
    # the first concurrency at which it does; None = not reached, or not known
    degrades_at: int | None
    confirmed: bool = False  # the step after it says the same
    reason: str | None = None  # why ``degrades_at`` is None


def steady_span(sent: Sent, warm_up: int) -> tuple[float, float]:
    """From the end of the ``warm_up``-th request to the last one sent: the loop is full between.

    Raises ValueError: nothing was sent.
    """
    if not len(sent):
        raise ValueError("nothing was sent")
    ends = np.sort(sent.end_seconds)
    begin = ends[warm_up - 1] if 0 < warm_up <= len(ends) else sent.start_seconds.min()
    if warm_up > len(ends):
        begin = ends[-1]
    return float(begin), float(sent.start_seconds.max())


def measure(concurrency: int, sent: Sent, *, warm_up: int) -> Level:
    """The figures of one level.

    Requests count that ended in the steady part, (begin, end]: seen over a stretch of a stationary
    loop that is chosen without looking at them, their mean is the loop's own. Failed ones are
    counted by reason and leave every other figure alone.
    """
    begin, end = steady_span(sent, warm_up) if len(sent) else (0.0, 0.0)
    done = np.array([not why for why in sent.failures], dtype=bool)
    failed = Counter(why for why in sent.failures if why)
    inside = done & (sent.end_seconds > begin) & (sent.end_seconds <= end)
    count, seconds = int(inside.sum()), max(0.0, end - begin)
    level = Level(concurrency, len(sent), count, seconds, dict(sorted(failed.items())))
    if count == 0 or seconds == 0.0:
        why = (
            "no request finished in the steady part: send more requests per level"
            if done.any()
            else "no request was served"
        )
        return replace(level, reasons=dict.fromkeys(_FIGURES, why))
    reasons: dict[str, str] = {}
    start = sent.start_seconds[inside]
    ttft = sent.first_token_seconds[inside] - start
    e2e = sent.end_seconds[inside] - start
    tokens = sent.generation_tokens[inside]

    def quantile(name: str, values: Floats, q: float) -> float | None:
        finite = values[np.isfinite(values)]
        needed = math.ceil(round(1 / (1 - q), 6))
        if len(finite) < needed:
            reasons[name] = f"needs {needed:,} requests, {len(finite):,} were steady"
            return None
        return float(np.quantile(finite, q))

    def per_second(name: str, values: Floats) -> float | None:
        if np.isfinite(values).all():
            return float(values.sum()) / seconds
        reasons[name] = "the server does not report its tokens"
        return None

    decoded = tokens > 1  # NaN is not
    later = tokens[decoded] - 1
    tpot = (e2e - ttft)[decoded] / later
    generated = per_second("generation_tokens_per_second", tokens)
    if generated is None:
        of_all = reasons["generation_tokens_per_second"]
        reasons["generation_tokens_per_second_per_user"] = of_all
    if not decoded.any():
        reasons["itl_seconds_mean"] = reasons["tpot_seconds_p99"] = (
            "no request with two tokens or more"
        )
    return replace(
        level,
        requests_per_second=count / seconds,
        generation_tokens_per_second=generated,
        generation_tokens_per_second_per_user=None
        if generated is None
        else generated / concurrency,
        prompt_tokens_per_second=per_second("prompt_tokens_per_second", sent.prompt_tokens[inside]),
        ttft_seconds_p50=quantile("ttft_seconds_p50", ttft, 0.5),
        ttft_seconds_p99=quantile("ttft_seconds_p99", ttft, 0.99),
        itl_seconds_mean=float((e2e - ttft)[decoded].sum() / later.sum()) if len(later) else None,
        tpot_seconds_p99=quantile("tpot_seconds_p99", tpot, 0.99) if len(later) else None,
        e2e_seconds_mean=float(e2e.mean()),
        e2e_seconds_p50=quantile("e2e_seconds_p50", e2e, 0.5),
        e2e_seconds_p99=quantile("e2e_seconds_p99", e2e, 0.99),
        e2e_seconds_p999=quantile("e2e_seconds_p999", e2e, 0.999),
        e2e_seconds_max=float(e2e.max()),
        reasons=reasons,
    )


def with_gains(levels: Sequence[Level]) -> list[Level]:
    """The levels, sorted by concurrency, each with its elasticity against the one before."""
    with_gain: list[Level] = []
    for level in sorted(levels, key=lambda one: one.concurrency):
        before = with_gain[-1] if with_gain else None
        if before is not None and before.requests_per_second and level.requests_per_second:
            gain = math.log(level.requests_per_second / before.requests_per_second) / math.log(
                level.concurrency / before.concurrency
            )
            with_gain.append(replace(level, gain_ratio=gain))
            continue
        why = "the first level" if before is None else "needs this level's requests/s and the last"
        reasons = {**(level.reasons or {}), "gain_ratio": why}
        with_gain.append(replace(level, gain_ratio=None, reasons=reasons))
    return with_gain


def find_degradation(levels: Sequence[Level]) -> Degradation:
    """Where latency starts to degrade, by :data:`DEFINITION`.

    A level without figures ends the search: what comes after is not judged, and where nothing
    degrades before it there is no verdict.
    """
    judged: list[Level] = []
    unknown = ""
    for level in levels:
        if level.requests_per_second is None:
            why = (level.reasons or {}).get("requests_per_second", "not served")
            unknown = f"{level.concurrency} users: {why}"
            break
        judged.append(level)
    if len(judged) < 2:
        detail = f" ({unknown})" if unknown else ""
        return Degradation(None, None, reason=f"two levels that were served are needed{detail}")
    gains = [level.gain_ratio for level in judged]
    for at in range(1, len(judged)):
        here, after = gains[at], gains[at + 1] if at + 1 < len(judged) else None
        if here is None or here >= GAIN or (after is not None and after >= GAIN):
            continue
        return Degradation(judged[at - 1].concurrency, judged[at].concurrency, after is not None)
    top = judged[-1].concurrency
    if unknown:
        return Degradation(None, None, reason=f"throughput still rises at {top}; {unknown}")
    return Degradation(top, None, reason=f"not reached: throughput still rises at {top}")


def simulated_level(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    concurrency: int,
    *,
    count: int,
    warm_up: int,
    timeout_seconds: float | None = None,
) -> Level:
    """Simulate one level: ``count`` requests, ``concurrency`` at a time.

    Args:
        requests: whose lengths are sent, over again from the first where there are fewer; their
            arrivals and cancellations are not used.
        configuration: of the scheduler.
        step_time: step-time model.
        concurrency: users.
        count: requests sent in all.
        warm_up: how many ends are left out at the start.
        timeout_seconds: a user gives up after so long.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request never fits.
    """
    outcome = simulate(
        requests.at(np.zeros(count)),
        configuration,
        step_time,
        concurrency=concurrency,
        timeout_seconds=timeout_seconds,
    )
    table = outcome.requests
    statuses = table["status"].to_list()
    sent = Sent(
        start_seconds=table["arrival_seconds"].to_numpy(),
        first_token_seconds=table["first_token_seconds"].fill_null(float("nan")).to_numpy(),
        end_seconds=table["end_seconds"].fill_null(float("inf")).to_numpy(),
        prompt_tokens=table["prompt_tokens"].cast(float).to_numpy(),
        generation_tokens=table["generated_tokens"].cast(float).to_numpy(),
        failures=tuple("" if status == "finished" else status for status in statuses),
    )
    level = measure(concurrency, sent, warm_up=warm_up)
    busy = {"client_busy_ratio": "simulated: no client is at work"}
    return replace(level, reasons={**(level.reasons or {}), **busy})
