"""Prefix hits that no metric tells request by request: an answer must hold either way.

The counters say how many prompt tokens hit the cache, not whose. Replayed as an equal part of every
prompt they are spread as far as they can be; as whole prompts of some requests, as little. Where
today's replay is the same both ways within the gates, both are worlds of the answer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from driftwatch.recommend.advice import Gate
from driftwatch.recommend.gates import BOUNDS, hits_gate, hits_known
from driftwatch.recommend.observed.traffic import Observed
from driftwatch.recommend.sweep import TIES, Ground
from driftwatch.simulate.requests import Requests

_COMPARED = ("generation_tokens_per_second", "itl_seconds", "ttft_seconds", "running_requests")


def with_unknown_hits(ground: Ground, observed: Observed, seed: int) -> tuple[Ground, Gate]:
    """The ground with the other world where hits are unknown, and what the gate says of them.

    Args:
        ground: of the sweep, hits as equal parts.
        observed: the window.
        seed: of the draw of who hits.
    """
    if hits_known(observed):
        return ground, hits_gate(observed, None)
    block = ground.worlds[0].configuration.block_size
    rng = np.random.default_rng(seed)
    drawn = as_whole_prompts(ground.requests, block, rng)
    other = replace(ground.worlds[0], whole_hits=True)
    both = replace(ground, worlds=[*ground.worlds, other], whole_hits=drawn)
    even = both.measured(ground.worlds[0], {}, scraped=True)
    whole = both.measured(other, {}, scraped=True)
    off: dict[str, float] = {}
    shares = [0.0 if one is None else one.in_target_ratio for one in (even, whole)]
    alike = abs(shares[0] - shares[1]) <= TIES
    for name in _COMPARED:
        if name == "ttft_seconds" and (observed.saturated or alike):
            continue  # what matters of it is who is in target
        before = None if even is None else getattr(even, name)
        after = None if whole is None else getattr(whole, name)
        if before and after is not None:
            off[name] = after / before - 1.0
    if not off:
        off = {"itl_seconds": float("inf")}
    assert set(off) <= set(BOUNDS)  # noqa: S101 - names of one table
    return both, hits_gate(observed, off)


def as_whole_prompts(requests: Requests, block_size: int, rng: np.random.Generator) -> Requests:
    """As many cached tokens in all, but as whole prompts of requests drawn at random.

    Args:
        requests: with cached tokens.
        block_size: a hit is whole blocks, and never a prompt's last token.
        rng: the randomness.
    """
    total = int(np.maximum(requests.cached_tokens, 0).sum())
    whole = (requests.prompt_tokens - 1) // block_size * block_size
    order = rng.permutation(len(requests))
    before = np.cumsum(whole[order]) - whole[order]
    cached = np.zeros(len(requests), dtype=np.int64)
    cached[order] = np.clip(total - before, 0, whole[order]) // block_size * block_size
    return replace(requests, cached_tokens=cached)
