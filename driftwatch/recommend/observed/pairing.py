"""Which prompt came with which generation: no histogram tells, but the KV cache's use does.

A request that runs holds its prompt and, on average over its life, half its generation; those with
long generations run longer. So the tokens held per running request are, over all requests,

    Σ G · (P + G/2 + half a block) / Σ G

(recommendation.md, closed form of the KV limit, E[PG]/E[G] + E[G²]/(2E[G])), and the KV cache's use
over the number of running requests measures it. Of all pairings that keep both histograms, one is
taken that meets it: prompts are ordered by a mix of their generation's rank and chance.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from driftwatch.recommend.observed.clean import Clean
from driftwatch.recommend.server import Server

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Fewer running on average say more of the moments of the scrapes than of the lengths.
_LEAST_RUNNING = 1.0
_STEPS = 8
_NEAR = 1e-3
_CLOSEST = 0.98  # a pairing in which chance has no part is no server's


def held_per_request(stretch: Clean, server: Server) -> float | None:
    """Tokens in the KV cache per running request; None where that is unknown."""
    if server.num_gpu_blocks is None or server.block_size is None:
        return None
    use, running = stretch.column("kv_cache_usage_ratio"), stretch.column("running_requests")
    known = ~(np.isnan(use) | np.isnan(running))
    seconds = np.where(known, np.diff(stretch.edges), 0.0)
    ran = float((np.where(known, running, 0.0) * seconds).sum())
    if ran < _LEAST_RUNNING * float(seconds.sum()) or not ran > 0:
        return None
    tokens = (server.num_gpu_blocks - 1) * server.block_size
    return float((np.where(known, use, 0.0) * seconds).sum()) * tokens / ran


def paired(
    prompt: Integers,
    generation: Integers,
    row: Integers,
    held_tokens: float,
    block_size: int,
    hit_ratio: float,
    rng: np.random.Generator,
) -> Integers:
    """The prompts, exchanged inside each row so that requests hold as much as was observed.

    Args:
        prompt: tokens, by request.
        generation: tokens, by request.
        row: of each request; prompts stay in theirs.
        held_tokens: per running request, as observed.
        block_size: tokens of a block.
        hit_ratio: prefix hits over queries. What is hit may be held once for many or by each for
            itself; the pairing by chance stays where that explains the use.
        rng: the randomness.

    Returns:
        As near as a pairing can come to it.
    """
    if len(prompt) < 2:
        return prompt
    chance = rng.standard_normal(len(prompt))
    rank = _scores(generation, row, rng)
    by_prompt = np.lexsort((prompt, row))  # where the prompts of a row go, in its places' order
    half = (generation + block_size) / 2.0
    wanted = held_tokens * float(generation.sum()) - float((generation * half).sum())

    def exchanged(weight: float) -> Integers:
        mixed = weight * rank + np.sqrt(1.0 - weight * weight) * chance
        found = np.empty_like(prompt)
        found[np.lexsort((mixed, row))] = prompt[by_prompt]
        return found

    def product(weight: float) -> float:
        return float((exchanged(weight) * generation).sum())

    # each holds its own, or all hold one in common
    wanted = float(np.clip(product(0.0), wanted, wanted / (1.0 - min(hit_ratio, _CLOSEST))))

    def off(weight: float) -> float:
        return product(weight) - wanted

    # the sum of products rises with the weight, nearly in a line: false position
    (low, low_off), (high, high_off) = ((w, off(w)) for w in (-_CLOSEST, _CLOSEST))
    if abs(off(0.0)) <= _NEAR * abs(wanted):
        return exchanged(0.0)
    if low_off >= 0 or high_off <= 0:
        return exchanged(low if low_off >= 0 else high)
    weight = 0.0
    for _ in range(_STEPS):
        weight = low - low_off * (high - low) / (high_off - low_off)
        found = off(weight)
        if abs(found) < _NEAR * abs(wanted):
            break
        if found < 0:
            low, low_off = weight, found
        else:
            high, high_off = weight, found
    return exchanged(weight)


def _scores(values: Integers, row: Integers, rng: np.random.Generator) -> Floats:
    """Rank of each value in its row as a standard score; equal ones by chance."""
    order = np.lexsort((rng.random(len(values)), values, row))
    counts = np.bincount(row)
    first = np.concatenate(([0], np.cumsum(counts)[:-1]))
    place = np.empty(len(values))
    place[order] = np.arange(len(values)) - first[row[order]]
    share = (place + 0.5) / counts[row]
    # the logistic score, scaled to a variance of one: near enough to the normal one, and closed
    scores: Floats = np.log(share / (1.0 - share)) * (np.sqrt(3.0) / np.pi)
    return scores
