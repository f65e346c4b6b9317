"""What helps where no knob does: replicas, cached prefixes, fp8 KV, load turned away."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from driftwatch.recommend.advice import Candidate
from driftwatch.recommend.candidates import candidate, capacity_of
from driftwatch.recommend.sweep import Ground
from driftwatch.recommend.worlds import KNOBS, World
from driftwatch.simulate.requests import Requests

HALF = 0.5
MOST_REPLICAS_MORE = 8
PREFIX_HIT_RATIO, REPLICAS, FP8_KV = "prefix_hit_ratio", "replicas", "kv_cache_dtype_fp8"
ASKED = (*KNOBS, REPLICAS, PREFIX_HIT_RATIO, FP8_KV)


def with_prefix_hits(requests: Requests, ratio: float, block_size: int) -> Requests:
    """The same requests, each with so large a share of its prompt cached, in whole blocks.

    The last token is computed always (vLLM ``v1/core/kv_cache_manager.py``).
    """
    most = (requests.prompt_tokens - 1) // block_size
    blocks = np.minimum((requests.prompt_tokens * ratio / block_size).astype(np.int64), most)
    return replace(requests, cached_tokens=blocks * block_size)


def prefix_hits(ground: Ground, requests: Requests, ratio: float, today: Candidate) -> Candidate:
    """Capacity and share in target with such a share of every prompt cached."""
    block = ground.worlds[0].configuration.block_size
    cached = with_prefix_hits(requests, ratio, block)
    then = replace(
        ground,
        requests=with_prefix_hits(ground.requests, ratio, block),
        whole_hits=None,
        memory={},
        limits={},
        capacities={},
    )
    return _asked(ground, then, {PREFIX_HIT_RATIO: ratio}, cached, today)


def fp8_kv(ground: Ground, requests: Requests, today: Candidate) -> Candidate | None:
    """The same with twice the KV blocks; None where their number is unknown."""
    worlds = [_wider(world) for world in ground.worlds]
    blocks = worlds[0].configuration.num_gpu_blocks
    if blocks is None:
        return None
    then = replace(ground, worlds=worlds, memory={}, limits={}, capacities={})
    return replace(_asked(ground, then, {FP8_KV: 1.0}, requests, today), kv_blocks=blocks)


def more_replicas(ground: Ground, today: Candidate, offered: float, have: int, n: int) -> Candidate:
    """The pool with so many replicas: each gets its share of the arrivals.

    Args:
        ground: of the sweep.
        today: with its capacity.
        offered: requests a second of one replica now.
        have: replicas now.
        n: replicas then.
    """
    found = candidate(ground, {}, offered=offered, demand=have / n)
    return replace(
        found,
        knobs={REPLICAS: float(n)},
        capacity_requests_per_second=today.capacity_requests_per_second,
        capacity_low_requests_per_second=today.capacity_low_requests_per_second,
        capacity_high_requests_per_second=today.capacity_high_requests_per_second,
    )


def replicas_needed(today: Candidate, offered: float, have: int) -> int | None:
    """Replicas that serve this demand within capacity by the slowest law; None = unknown."""
    limit = today.capacity_low_requests_per_second
    if not limit:
        return None
    return max(have, math.ceil(have * offered / limit))


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
    found = []
    knobs = {name: value for name, value in what_if.items() if name in KNOBS}
    if knobs:
        found.append(
            candidate(
                ground,
                knobs,
                offered=offered,
                judged_requests=requests,
                near=near,
            )
        )
    if PREFIX_HIT_RATIO in what_if:
        found.append(prefix_hits(ground, requests, what_if[PREFIX_HIT_RATIO], today))
    if what_if.get(FP8_KV):
        wider = fp8_kv(ground, requests, today)
        found.append(wider or Candidate({FP8_KV: 1.0}, refused="the KV block count is unknown"))
    if REPLICAS in what_if:
        n = max(1, round(what_if[REPLICAS]))
        found.append(more_replicas(ground, today, offered, replicas or 1, n))
    return found


def _wider(world: World) -> World:
    blocks = world.configuration.num_gpu_blocks
    twice = None if blocks is None else 2 * blocks
    return replace(world, configuration=replace(world.configuration, num_gpu_blocks=twice))


def _asked(
    ground: Ground,
    then: Ground,
    said: Mapping[str, float],
    requests: Requests,
    today: Candidate,
) -> Candidate:
    """Share in every world; capacity as the best law has it, in proportion to today's by all."""
    found = candidate(then, {}, offered=0.0)
    limit = today.capacity_requests_per_second
    rates = capacity_of(ground, {}, ground.requests).rates
    base = rates[0] if rates else 0.0
    alone = replace(then, worlds=then.worlds[:1])
    after = capacity_of(alone, {}, requests, base or None).mean
    if not base or limit is None or after is None:
        return replace(found, knobs=said)
    low, high = today.capacity_low_requests_per_second, today.capacity_high_requests_per_second
    return replace(
        found,
        knobs=said,
        capacity_requests_per_second=limit * after / base,
        capacity_low_requests_per_second=None if low is None else low * after / base,
        capacity_high_requests_per_second=None if high is None else high * after / base,
    )
