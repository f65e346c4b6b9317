"""Rows of an answer: one configuration over all scenarios, the table, and what helps where no knob
does (replicas, cached prefixes, fp8 KV, load turned away).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from driftwatch.knobs import KNOBS
from driftwatch.model import Serving
from driftwatch.recommend.advice import Candidate
from driftwatch.recommend.ground import Ground
from driftwatch.recommend.replicas import replicas_for
from driftwatch.recommend.scenarios import setting_of
from driftwatch.recommend.simulation import Measured
from driftwatch.recommend.sweep import Gain, mean
from driftwatch.recommend.sweep_values import Knobs, Range, refusal, single_knobs
from driftwatch.simulate.requests import Requests

# a TTFT near capacity is a queue that any error of the rate makes another
NEAR_CAPACITY = 0.9
NEAR = "the load is above 90 % of capacity, where TTFT cannot be forecast"
GROWS = "it cannot keep up with this demand: its queue only grows"
SATURATED = "requests wait all the time, and without a request log a backlog adds up every error"


# figures of a simulation, of which a candidate has the mean over the scenarios
_MEANS = (
    *("ttft_seconds", "ttft_p95_seconds", "itl_seconds", "itl_p99_seconds", "tpot_p95_seconds"),
    *("generation_tokens_per_second", "running_requests", "kv_cache_peak_ratio", "preemptions"),
)


def candidate(
    ground: Ground,
    knobs: Knobs,
    *,
    offered: float,
    judged_requests: Requests | None = None,
    near: float | None = None,
    demand: float = 1.0,
) -> Candidate:
    """Simulate one configuration in every scenario.

    ``knobs``: what is turned; empty = today; ``judged_requests``: the requests to find the capacity
    with; None = it is not looked for.
    """
    scenario = ground.scenarios[0]
    refused = refusal(scenario.configuration, knobs)
    others = {one.configuration for one in ground.scenarios}
    if not refused and any(refusal(one, knobs) for one in others):
        refused = "max_num_batched_tokens is unknown and may be below max_num_seqs"
    if refused:
        return Candidate(knobs, refused=refused)
    runs = [ground.measured(one, knobs, scraped=True, demand=demand) for one in ground.scenarios]
    measured = [one for one in runs if one is not None]
    if len(measured) < len(runs):
        return Candidate(knobs, refused="requests of this window never fit the KV cache then")
    shares = [one.in_target_ratio for one in measured]
    means: dict[str, Any] = {name: _mean_of(measured, name) for name in _MEANS}
    row = Candidate(
        knobs,
        in_target_ratio=mean(shares),
        in_target_low_ratio=min(shares),
        in_target_high_ratio=max(shares),
        ttft_in_target_ratio=_alone(ground, measured, "ttft_in_target_ratio", demand),
        tpot_in_target_ratio=_alone(ground, measured, "tpot_in_target_ratio", demand),
        kv_blocks=ground.blocks.after(scenario.configuration, knobs),
        **means,
        reasons={}
        if any(one.kv_cache_peak_ratio is not None for one in measured)
        else {"kv_cache_peak_ratio": "KV block count unknown", "kv_blocks": "not on the page"},
    )
    if judged_requests is not None:
        limit = ground.capacity(knobs, judged_requests, near)
        row = replace(
            row,
            capacity_requests_per_second=limit.mean,
            capacity_low_requests_per_second=limit.low,
            capacity_high_requests_per_second=limit.high,
            capacities_requests_per_second=limit.rates,
        )
    keeps_up = all(one.keeps_up for one in measured)
    return without_ttft(row, offered * demand, not ground.ttft_compared, keeps_up)


def without_ttft(
    row: Candidate, offered: float, saturated: bool, keeps_up: bool = True
) -> Candidate:
    """No TTFT where none may be quoted, and why."""
    limit = row.capacity_requests_per_second
    why = None
    if saturated:
        why = SATURATED
    elif limit is not None and offered >= NEAR_CAPACITY * limit:
        why = NEAR
    elif not keeps_up:
        why = GROWS
    if why is None:
        return row
    reasons = {**row.reasons, "ttft_seconds": why, "ttft_p95_seconds": why}
    return replace(row, ttft_seconds=None, ttft_p95_seconds=None, reasons=reasons)


def _mean_of(measured: Sequence[Measured], name: str) -> float | None:
    values = [value for one in measured if (value := getattr(one, name)) is not None]
    return mean(values) if values else None


def _alone(ground: Ground, measured: Sequence[Measured], name: str, demand: float) -> float | None:
    """The share in one target, over the scenarios whose simulation of today meets it; else over
    all.
    """
    share = 0.0 if ground.judged.slo is None else ground.judged.slo.share
    today = [
        ground.measured(scenario, {}, scraped=True, demand=demand) for scenario in ground.scenarios
    ]
    meets = [one is not None and (getattr(one, name) or 0.0) >= share for one in today]
    telling = [one for one, tells in zip(measured, meets, strict=True) if tells]
    return _mean_of(telling or measured, name)


# below it nothing is scarce
MARGIN = 0.8


@dataclass(frozen=True, slots=True)
class Case:
    """What a verdict is made of."""

    ground: Ground
    serving: Serving
    today: Candidate
    offered: float
    replicas: int | None  # of the pool; None = unknown
    reference_capacity: float | None  # at the reference's lengths; None = unknown
    # of one replica, in the reference; None = unknown
    reference_tokens_per_second: float | None = None
    saturated: bool = False
    # target (``ttft``, ``tpot``) → whether the window's own p95 met it; what was not observed is
    # not in it
    met_in_window: Mapping[str, bool] = field(default_factory=dict)

    @property
    def utilization(self) -> float | None:
        """Offered rate over capacity."""
        limit = self.today.capacity_requests_per_second
        return None if not limit else self.offered / limit

    @property
    def share(self) -> float:
        """The share of requests that shall meet the targets."""
        slo = self.ground.judged.slo
        return slo.share if slo else 0.95

    @property
    def is_in_target(self) -> bool:
        """The share is met in every scenario, and was in the window as far as it was observed."""
        low = self.today.in_target_low_ratio
        return all(self.met_in_window.values()) and low is not None and low >= self.share

    @property
    def overloaded(self) -> bool:
        """More is asked for than can be served within the targets."""
        return self.utilization is not None and self.utilization > 1.0

    @property
    def margin(self) -> bool:
        """… and the demand leaves room."""
        return self.is_in_target and self.utilization is not None and self.utilization < MARGIN


_ROWS_WITH_CAPACITY = 8


def table_rows(
    case: Case, judged: Requests, gains: Sequence[Gain], advised: Candidate | None
) -> tuple[Candidate, ...]:
    """Candidates that vary the advised knob, or the one that came nearest, by value."""
    ground = case.ground
    today = ground.scenarios[0].configuration
    first = advised.knobs if advised else (gains[0].knobs if gains else {})
    first = first or {"max_num_seqs": float(today.max_num_seqs)}
    knob = next(iter(first))
    line = single_knobs(Range(today, ground.budget_known), only=knob)
    now = setting_of(today, knob) or 0.0
    target = first[knob]

    def steps(knobs: Knobs) -> float:
        value = knobs[knob]
        return abs(math.log2(value / target)) if value > 0 and target > 0 else 0.0

    near = sorted(line, key=steps)[:_ROWS_WITH_CAPACITY]
    rows = [case.today]
    for knobs in line:
        if advised is not None and dict(knobs) == dict(advised.knobs):
            continue
        rows.append(_row(case, knobs, judged if knobs in near else None))
    rows.sort(key=lambda row: row.knobs.get(knob, now))
    if advised is not None:
        rows.append(advised)
        if len(advised.knobs) == 1:
            rows.sort(key=lambda row: row.knobs.get(knob, now))
    return tuple(rows)


def _row(case: Case, knobs: Knobs, judged: Requests | None) -> Candidate:
    """One value in every scenario; with a capacity where it is near the advised one."""
    row = candidate(
        case.ground,
        knobs,
        offered=case.offered,
        judged_requests=judged,
        near=case.today.capacity_requests_per_second,
    )
    if judged is not None or row.refused:
        return row
    why = "looked for only near today's and the advised value"
    return replace(row, reasons={**row.reasons, "capacity_requests_per_second": why})


PREFIX_HIT_RATIO, REPLICAS, FP8_KV = "prefix_hit_ratio", "replicas", "kv_cache_dtype_fp8"
WHAT_IFS = (*KNOBS, REPLICAS, PREFIX_HIT_RATIO, FP8_KV)


def with_prefix_hits(requests: Requests, ratio: float, block_size: int) -> Requests:
    """The same requests, each with so large a share of its prompt cached, in whole blocks.

    The last token is computed always (vLLM ``v1/core/kv_cache_manager.py``).
    """
    most = (requests.prompt_tokens - 1) // block_size
    blocks = np.minimum((requests.prompt_tokens * ratio / block_size).astype(np.int64), most)
    return replace(requests, cached_tokens=blocks * block_size)


def prefix_hits(ground: Ground, requests: Requests, ratio: float, today: Candidate) -> Candidate:
    """Capacity and share in target with such a share of every prompt cached."""
    block = ground.scenarios[0].configuration.block_size
    cached = with_prefix_hits(requests, ratio, block)
    then = ground.other(requests=with_prefix_hits(ground.requests, ratio, block), whole_hits=None)
    return _with_scaled_capacity(ground, then, {PREFIX_HIT_RATIO: ratio}, cached, today)


def fp8_kv(ground: Ground, requests: Requests, today: Candidate) -> Candidate | None:
    """The same with twice the KV blocks; None where their number is unknown."""
    if any(one.configuration.num_gpu_blocks is None for one in ground.scenarios):
        return None
    scenarios = []
    for one in ground.scenarios:
        blocks = 2 * (one.configuration.num_gpu_blocks or 0)
        wider = replace(one.configuration, num_gpu_blocks=blocks)
        scenarios.append(replace(one, configuration=wider))
    row = _with_scaled_capacity(
        ground, ground.other(scenarios=scenarios), {FP8_KV: 1.0}, requests, today
    )
    return replace(row, kv_blocks=scenarios[0].configuration.num_gpu_blocks)


def more_replicas(ground: Ground, today: Candidate, offered: float, have: int, n: int) -> Candidate:
    """The pool with so many replicas: each gets its share of the arrivals."""
    row = candidate(ground, {}, offered=offered, demand=have / n)
    return replace(
        row,
        knobs={REPLICAS: float(n)},
        capacity_requests_per_second=today.capacity_requests_per_second,
        capacity_low_requests_per_second=today.capacity_low_requests_per_second,
        capacity_high_requests_per_second=today.capacity_high_requests_per_second,
    )


def replicas_needed(today: Candidate, offered: float, have: int) -> int | None:
    """Replicas that serve this demand within capacity by the slowest step-time model; None =
    unknown.
    """
    limit = today.capacity_low_requests_per_second
    if not limit:
        return None
    return max(have, replicas_for(have * offered, limit))


def shedding(ground: Ground, today: Candidate, offered: float) -> Candidate | None:
    """Turn away what would wait too long: max_num_queued_tokens at what TTFT allows to queue.

    The prompt tokens that a replica computes in the TTFT target, by its capacity at these lengths.
    """
    slo, limit = ground.judged.slo, today.capacity_requests_per_second
    if slo is None or slo.ttft_seconds is None or not limit:
        return None
    prompt = float(ground.requests.prompt_tokens.mean())
    tokens = max(prompt, slo.ttft_seconds * limit * prompt)
    rounded = float(2 ** math.floor(math.log2(max(tokens, 1.0))))
    return candidate(ground, {"max_num_queued_tokens": rounded}, offered=offered)


def asked_for(
    ground: Ground,
    what_if: Mapping[str, float],
    requests: Requests,
    *,
    today: Candidate,
    offered: float,
    replicas: int | None,
) -> list[Candidate]:
    """What the question asks besides: knobs together, the others one by one."""
    near = today.capacity_requests_per_second
    candidates = []
    knobs = {name: value for name, value in what_if.items() if name in KNOBS}
    if knobs:
        candidates.append(
            candidate(ground, knobs, offered=offered, judged_requests=requests, near=near)
        )
    if PREFIX_HIT_RATIO in what_if:
        candidates.append(prefix_hits(ground, requests, what_if[PREFIX_HIT_RATIO], today))
    if what_if.get(FP8_KV):
        wider = fp8_kv(ground, requests, today)
        candidates.append(
            wider or Candidate({FP8_KV: 1.0}, refused="the KV block count is unknown")
        )
    if REPLICAS in what_if:
        n = max(1, round(what_if[REPLICAS]))
        candidates.append(more_replicas(ground, today, offered, replicas or 1, n))
    return candidates


def _with_scaled_capacity(
    ground: Ground, then: Ground, turned: Mapping[str, float], requests: Requests, today: Candidate
) -> Candidate:
    """Share in every scenario; capacity as the best step-time model has it, in proportion to
    today's by all.
    """
    row = candidate(then, {}, offered=0.0)
    limit = today.capacity_requests_per_second
    rates = ground.capacity({}, ground.requests).rates
    base = rates[0] if rates else 0.0
    alone = replace(then, scenarios=then.scenarios[:1])
    after = alone.capacity({}, requests, base or None).mean
    if not base or limit is None or after is None:
        return replace(row, knobs=turned)
    low, high = today.capacity_low_requests_per_second, today.capacity_high_requests_per_second
    return replace(
        row,
        knobs=turned,
        capacity_requests_per_second=limit * after / base,
        capacity_low_requests_per_second=None if low is None else low * after / base,
        capacity_high_requests_per_second=None if high is None else high * after / base,
    )
