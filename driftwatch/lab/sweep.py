"""Closed loop at rising concurrency: what each level gave, and where latency starts to degrade.

At a fixed concurrency N Little's law ties throughput X and mean latency R together, N = X · R: what
more concurrency does not bring in throughput it costs in latency. The share that becomes throughput
is the elasticity d ln X / d ln N: 1 while every further user is served as fast as before, 0 once
the server is saturated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import simulate

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

GAIN = 0.5  # below it a step of concurrency costs more latency than it brings throughput
DEFINITION = (
    "latency starts to degrade at the first level from which more than half of the added users "
    "turns into latency instead of throughput: d ln(requests/s) / d ln(users) "
    f"below {GAIN:g}, and at the next level where there is one"
)
_NEEDED = {0.5: 2, 0.99: 100}  # requests behind a quantile


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """Requests of one level, any order; all arrays of one length."""

    start_seconds: Floats  # when each was sent
    first_token_seconds: Floats  # when its first token came
    end_seconds: Floats  # when it ended, one way or the other
    generation_tokens: Floats  # that were delivered
    failures: tuple[str, ...]  # why it did not finish, "" where it did

    def __len__(self) -> int:
        return len(self.start_seconds)


@dataclass(frozen=True, slots=True)
class Level:
    """What one concurrency gave over its steady part; None = unknown, ``reasons`` says why."""

    concurrency: int
    sent_requests: int
    steady_requests: int
    steady_seconds: float
    failed_requests: Mapping[str, int]
    requests_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    generation_tokens_per_second_per_user: float | None = None
    ttft_seconds_p50: float | None = None
    ttft_seconds_p99: float | None = None
    itl_seconds_mean: float | None = None
    e2e_seconds_mean: float | None = None
    e2e_seconds_p50: float | None = None
    e2e_seconds_p99: float | None = None
    gain_ratio: float | None = None  # elasticity against the level before
    reasons: Mapping[str, str] = field(default_factory=dict)


_FIGURES = [one.name for one in fields(Level) if one.default is None and one.name != "gain_ratio"]


@dataclass(frozen=True, slots=True)
class Degradation:
    """Where latency starts to degrade."""

    holds_to: int | None  # the last concurrency before it; None = no verdict
    degrades_at: int | None  # the first at which it does; None = not reached, or not known
    confirmed: bool = False  # the step after it says the same
    reason: str | None = None  # why ``degrades_at`` is None


def measure(concurrency: int, sent: Sent, *, warm_up: int) -> Level:
    """The figures of one level.

    Requests count that ended in the steady part: from the end of the ``warm_up``-th request to the
    last one sent the loop is full. Failed ones are counted by reason and leave every other figure
    alone.
    """
    begin = end = 0.0
    if len(sent):
        ends, end = np.sort(sent.end_seconds), float(sent.start_seconds.max())
        begin = float(ends[min(warm_up, len(ends)) - 1] if warm_up else sent.start_seconds.min())
    done = np.array([not why for why in sent.failures], dtype=bool)
    failed = Counter(why for why in sent.failures if why)
    inside = done & (sent.end_seconds > begin) & (sent.end_seconds <= end)
    count, seconds = int(inside.sum()), max(0.0, end - begin)
    level = Level(concurrency, len(sent), count, seconds, dict(sorted(failed.items())))
    if count == 0 or seconds == 0.0:
        why = "no request was served"
        if done.any():
            why = "no request finished in the steady part: send more requests per level"
        return replace(level, reasons=dict.fromkeys(_FIGURES, why))
    ttft = (sent.first_token_seconds - sent.start_seconds)[inside]
    e2e, tokens = (sent.end_seconds - sent.start_seconds)[inside], sent.generation_tokens[inside]
    decoded = tokens > 1
    figures: dict[str, float] = {
        "requests_per_second": count / seconds,
        "generation_tokens_per_second": float(tokens.sum()) / seconds,
        "generation_tokens_per_second_per_user": float(tokens.sum()) / seconds / concurrency,
        "e2e_seconds_mean": float(e2e.mean()),
    }
    if decoded.any():
        later = (tokens[decoded] - 1).sum()
        figures["itl_seconds_mean"] = float((e2e - ttft)[decoded].sum() / later)
    for name, values in (("ttft_seconds", ttft), ("e2e_seconds", e2e)):
        for q, needed in _NEEDED.items():
            if count >= needed:
                figures[f"{name}_p{100 * q:g}"] = float(np.quantile(values, q))
    why = f"p50 needs 2 requests, p99 100: {count:,} were steady; or no request has two tokens"
    reasons = {name: why for name in _FIGURES if name not in figures}
    return replace(level, reasons=reasons, **figures)  # type: ignore[arg-type]


def with_gains(levels: Sequence[Level]) -> list[Level]:
    """The levels, sorted by concurrency, each with its elasticity against the one before."""
    found: list[Level] = []
    for level in sorted(levels, key=lambda one: one.concurrency):
        before, here = found[-1] if found else None, level.requests_per_second
        if before is not None and before.requests_per_second and here:
            added = math.log(level.concurrency / before.concurrency)
            gain = math.log(here / before.requests_per_second) / added
            found.append(replace(level, gain_ratio=gain))
            continue
        why = "the first level" if before is None else "needs this level's requests/s and the last"
        found.append(replace(level, reasons={**level.reasons, "gain_ratio": why}))
    return found


def find_degradation(levels: Sequence[Level]) -> Degradation:
    """Where latency starts to degrade, by :data:`DEFINITION`.

    A level without figures ends the search: what comes after is not judged, and where nothing
    degrades before it there is no verdict.
    """
    unserved = [level for level in levels if level.requests_per_second is None]
    judged = levels[: levels.index(unserved[0])] if unserved else levels
    unknown = "".join(
        f"; {one.concurrency} users: {one.reasons.get('requests_per_second', 'not served')}"
        for one in unserved[:1]
    )
    if len(judged) < 2:
        return Degradation(None, None, reason=f"two levels that were served are needed{unknown}")
    gains = [level.gain_ratio for level in judged]
    for at in range(1, len(judged)):
        here, after = gains[at], gains[at + 1] if at + 1 < len(judged) else None
        if here is None or here >= GAIN or (after is not None and after >= GAIN):
            continue
        return Degradation(judged[at - 1].concurrency, judged[at].concurrency, after is not None)
    top = judged[-1].concurrency
    why = f"throughput still rises at {top}{unknown}"
    return Degradation(None if unknown else top, None, reason=why)


def simulated(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    concurrency: int,
    count: int,
) -> Sent:
    """Simulate one level: ``count`` requests with these lengths, ``concurrency`` at a time.

    Raises ImpossibleConfiguration: vLLM would refuse the settings, or a request never fits.
    """
    sent = requests.at(np.zeros(count))
    table = simulate(sent, configuration, step_time, concurrency=concurrency).requests
    return Sent(
        table["arrival_seconds"].to_numpy(),
        table["first_token_seconds"].fill_null(math.nan).to_numpy(),
        table["end_seconds"].fill_null(math.inf).to_numpy(),
        table["generated_tokens"].cast(float).to_numpy(),
        tuple("" if one == "finished" else one for one in table["status"].to_list()),
    )
