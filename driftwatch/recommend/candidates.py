"""A row of the answer: one configuration over all worlds, with what may be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.recommend.advice import Candidate
from driftwatch.recommend.capacity import Capacity, capacity, rate_within, stretch
from driftwatch.recommend.replaying import Measured
from driftwatch.recommend.sweep import Ground
from driftwatch.recommend.sweep_candidates import Knobs, refusal
from driftwatch.recommend.worlds import with_knobs
from driftwatch.simulate.requests import Requests

# recommendation.md: a TTFT near capacity is a queue that any error of the rate makes another.
NEAR_CAPACITY = 0.9
NEAR = "within 10 % of capacity a TTFT is not to be forecast"
GROWS = "it cannot keep up with this demand: its queue only grows"
SATURATED = "a saturated window without a request log: the backlog integrates every error"


def candidate(
    ground: Ground,
    knobs: Knobs,
    *,
    offered: float,
    judged_requests: Requests | None = None,
    near: float | None = None,
    demand: float = 1.0,
) -> Candidate:
    """Replay one configuration in every world.

    Args:
        ground: of the sweep.
        knobs: what is turned; empty = today.
        offered: requests a second at the observed demand.
        judged_requests: the requests to find the capacity with; None = it is not looked for.
        near: requests a second to start looking at.
        demand: times the observed rate.
    """
    world = ground.worlds[0]
    refused = refusal(world.configuration, knobs)
    others = {one.configuration for one in ground.worlds}
    if not refused and any(refusal(one, knobs) for one in others):
        refused = "max_num_batched_tokens is unknown and may be below it"
    if refused:
        return Candidate(knobs, refused=refused)
    found = [ground.measured(one, knobs, scraped=True, demand=demand) for one in ground.worlds]
    measured = [one for one in found if one is not None]
    if len(measured) < len(found):
        return Candidate(knobs, refused="requests of this window never fit the KV cache then")
    shares = [one.in_target_ratio for one in measured]
    made = Candidate(
        knobs,
        in_target_ratio=mean(shares),
        in_target_low_ratio=min(shares),
        in_target_high_ratio=max(shares),
        ttft_in_target_ratio=_alone(ground, measured, "ttft_in_target_ratio", demand),
        tpot_in_target_ratio=_alone(ground, measured, "tpot_in_target_ratio", demand),
        ttft_p95_seconds=_mean_of(measured, "ttft_p95_seconds"),
        ttft_seconds=_mean_of(measured, "ttft_seconds"),
        itl_seconds=_mean_of(measured, "itl_seconds"),
        itl_p99_seconds=_mean_of(measured, "itl_p99_seconds"),
        tpot_p95_seconds=_mean_of(measured, "tpot_p95_seconds"),
        generation_tokens_per_second=_mean_of(measured, "generation_tokens_per_second"),
        running_requests=_mean_of(measured, "running_requests"),
        kv_cache_peak_ratio=_mean_of(measured, "kv_cache_peak_ratio"),
        kv_blocks=ground.blocks.after(world.configuration, knobs),
        preemptions=_mean_of(measured, "preemptions"),
        reasons=_unknown(measured),
    )
    if judged_requests is not None:
        limit = capacity_of(ground, knobs, judged_requests, near)
        made = replace(
            made,
            capacity_requests_per_second=limit.mean,
            capacity_low_requests_per_second=limit.low,
            capacity_high_requests_per_second=limit.high,
            capacities_requests_per_second=limit.rates,
        )
    keeps_up = all(one.keeps_up for one in measured)
    return without_ttft(made, offered * demand, not ground.ttft_compared, keeps_up)


def capacity_of(
    ground: Ground, knobs: Knobs, requests: Requests, near: float | None = None
) -> Capacity:
    """Capacity with some knobs in every world; unknown where they do not fit.

    What the ground's own requests allow is looked for once.
    """
    key = (*(world.key for world in ground.worlds), tuple(sorted(knobs.items())), near)
    own = requests is ground.requests
    if own and key in ground.capacities:
        return ground.capacities[key]
    settings = [
        with_knobs(w.configuration, knobs, ground.blocks.after(w.configuration, knobs))
        for w in ground.worlds
    ]
    try:
        found = capacity(
            requests,
            settings,
            [world.law for world in ground.worlds],
            ground.judged.slo,
            near=near,
            ttft_overhead_seconds=[world.ttft_overhead_seconds for world in ground.worlds],
        )
    except (ImpossibleConfiguration, NoVerdict):
        found = Capacity(None, None, None)
    if own:
        ground.capacities[key] = found
    return found


def surely_below(
    ground: Ground, knobs: Knobs, requests: Requests, near: float | None, rate: float
) -> bool:
    """Whether the capacity is below a rate in the first world, looked for no longer than needed.

    Args:
        ground: of the sweep.
        knobs: what is turned.
        requests: to find the capacity with.
        near: requests a second to start looking at.
        rate: requests a second.
    """
    world = ground.worlds[0]
    blocks = ground.blocks.after(world.configuration, knobs)
    try:
        return rate_within(
            stretch(requests),
            with_knobs(world.configuration, knobs, blocks),
            world.law,
            ground.judged.slo,
            near=near,
            overhead=world.ttft_overhead_seconds,
        ).is_below(rate)
    except (ImpossibleConfiguration, NoVerdict):
        return False


def without_ttft(
    found: Candidate, offered: float, saturated: bool, keeps_up: bool = True
) -> Candidate:
    """No TTFT where none may be quoted, and why."""
    limit = found.capacity_requests_per_second
    why = None
    if saturated:
        why = SATURATED
    elif limit is not None and offered >= NEAR_CAPACITY * limit:
        why = NEAR
    elif not keeps_up:
        why = GROWS
    if why is None:
        return found
    reasons = {**found.reasons, "ttft_seconds": why, "ttft_p95_seconds": why}
    return replace(found, ttft_seconds=None, ttft_p95_seconds=None, reasons=reasons)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean."""
    return sum(values) / len(values)


def _mean_of(measured: Sequence[Measured], name: str) -> float | None:
    values = [value for one in measured if (value := getattr(one, name)) is not None]
    return mean(values) if values else None


def _alone(ground: Ground, measured: Sequence[Measured], name: str, demand: float) -> float | None:
    """The share in one target, over the worlds whose replay of today meets it; else over all.

    A world that misses today what the server meets cannot tell whether a change would break it.
    """
    share = 0.0 if ground.judged.slo is None else ground.judged.slo.share
    today = [ground.measured(world, {}, scraped=True, demand=demand) for world in ground.worlds]
    met = [one is not None and (getattr(one, name) or 0.0) >= share for one in today]
    telling = [one for one, tells in zip(measured, met, strict=True) if tells]
    return _mean_of(telling or measured, name)


def _unknown(measured: Sequence[Measured]) -> dict[str, str]:
    if all(one.kv_cache_peak_ratio is None for one in measured):
        return {"kv_cache_peak_ratio": "KV block count unknown", "kv_blocks": "not on the page"}
    return {}
