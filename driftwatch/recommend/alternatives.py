"""What helps where no knob does, with its share in target and its capacity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from driftwatch.arrays import Floats, Integers
from driftwatch.knobs import KNOBS
from driftwatch.model import Slo
from driftwatch.recommend.advice import Candidate
from driftwatch.recommend.demand import cached
from driftwatch.recommend.forecast import Draw, Outlook, capacity
from driftwatch.recommend.search import refusal
from driftwatch.recommend.situation import Situation, row_of

PREFIX_HIT_RATIO, REPLICAS, FP8_KV = "prefix_hit_ratio", "replicas", "kv_cache_dtype_fp8"
WHAT_IFS = (*KNOBS, REPLICAS, PREFIX_HIT_RATIO, FP8_KV)
HALF_CACHED = 0.5
_MOST_TIMES_REPLICAS = 9  # times today's: more is no question of replicas
_DRAWS = 4  # of each: a share to a few points
_ONLY = "of replicas, cached prefixes and fp8 KV only share in target and capacity are simulated"
_NOT_SIMULATED = (
    *("ttft_seconds", "ttft_p95_seconds", "itl_seconds", "itl_p99_seconds", "tpot_p95_seconds"),
    *("generation_tokens_per_second", "running_requests", "preemptions"),
    *("kv_cache_peak_ratio", "kv_blocks"),
)


def replicas_for(demand: float, capacity_requests_per_second: float) -> int:
    """Replicas whose load stays at or below their capacity.

    ``demand``: requests a second of all together; the capacity, of one, is above 0.

    >>> replicas_for(30.0, 10.0), replicas_for(0.0, 10.0)
    (3, 1)
    """
    return max(1, math.ceil(demand / capacity_requests_per_second))


def alternatives(situation: Situation, today: Candidate) -> list[Candidate]:
    """More replicas, cached prefixes, an fp8 KV cache: as far as each applies."""
    limit, found = today.capacity_requests_per_second, list[Candidate]()
    if limit and (more := _enough_replicas(situation, today, limit)) is not None:
        found.append(more)
    if situation.settings.configurations[0].enable_prefix_caching:
        found.append(with_prefix_hits(situation, HALF_CACHED, limit))
    if (wider := with_fp8_kv(situation, limit)) is not None:
        found.append(wider)
    return found


def _enough_replicas(situation: Situation, today: Candidate, limit: float) -> Candidate | None:
    """One replica more than today at least: as many as serve this demand within the targets, else
    those that serve the highest demand of the draws; None = far too many.
    """
    have, row = situation.question.replicas or 1, None
    for times in (1.0, max(draw.demand for draw in situation.outlook.draws)):
        n = max(have + 1, replicas_for(times * have * situation.offered, limit))
        if n > _MOST_TIMES_REPLICAS * have:
            break
        row = with_replicas(situation, today, n)
        if (row.in_target_ratio or 0.0) >= (situation.slo or Slo()).share:
            break
    return row


def asked_for(situation: Situation, today: Candidate) -> list[Candidate]:
    """The question's what-ifs: knobs as one configuration, the others one by one."""
    what_if, limit = situation.question.what_if, today.capacity_requests_per_second
    knobs = {name: value for name, value in what_if.items() if name in KNOBS}
    found = []
    if knobs:
        refused = refusal(situation.settings.configurations[0], knobs)
        found.append(
            Candidate(knobs, refused=refused) if refused else row_of(situation, knobs, limit)
        )
    if PREFIX_HIT_RATIO in what_if:
        found.append(with_prefix_hits(situation, what_if[PREFIX_HIT_RATIO], limit))
    if what_if.get(FP8_KV):
        wider = with_fp8_kv(situation, limit)
        found.append(wider or Candidate({FP8_KV: 1.0}, refused="the KV block count is unknown"))
    if REPLICAS in what_if:
        found.append(with_replicas(situation, today, max(1, round(what_if[REPLICAS]))))
    return found


def with_replicas(situation: Situation, today: Candidate, n: int) -> Candidate:
    """The pool with so many replicas: each gets its share of the arrivals."""
    share = (situation.question.replicas or 1) / n

    def slower(draw: Draw) -> Draw:
        later = draw.requests.at(draw.requests.arrival_seconds / share)
        return replace(draw, requests=later, seconds=draw.seconds / share)

    row = _row(situation, {REPLICAS: float(n)}, slower)
    return replace(row, capacity_requests_per_second=today.capacity_requests_per_second)


def with_prefix_hits(situation: Situation, ratio: float, near: float | None) -> Candidate:
    """With such a share of every prompt cached."""
    block = situation.question.server.block_tokens

    def hitting(draw: Draw) -> Draw:
        rng = np.random.default_rng(situation.question.seed)
        hits = cached(draw.requests.prompt_tokens, ratio, block, rng)
        settings = replace(draw.configuration, enable_prefix_caching=True)
        requests = replace(draw.requests, cached_tokens=hits)
        return replace(draw, requests=requests, configuration=settings)

    return _row(situation, {PREFIX_HIT_RATIO: ratio}, hitting, near)


def with_fp8_kv(situation: Situation, near: float | None) -> Candidate | None:
    """With twice the KV blocks; None where their number is unknown."""
    if situation.settings.configurations[0].num_gpu_blocks is None:
        return None

    def wider(draw: Draw) -> Draw:
        blocks = 2 * (draw.configuration.num_gpu_blocks or 0)
        return replace(draw, configuration=replace(draw.configuration, num_gpu_blocks=blocks))

    return _row(situation, {FP8_KV: 1.0}, wider, near)


def baseline_capacity(situation: Situation, near: float | None) -> float | None:
    """Requests a second of one replica with lengths as in the baseline; None = it has none.

    Today's requests are scaled to the baseline's means; hits keep their share of the prompt.
    """
    reference, draw = situation.question.reference, situation.outlook.draws[0]
    requests, most = draw.requests, draw.configuration.max_model_len or math.inf
    times = {}
    for name in ("prompt_tokens", "generation_tokens"):
        mean = reference.get(f"reference_{name}_mean")
        times[name] = float(mean) / float(getattr(requests, name).mean()) if mean else 1.0
    if set(times.values()) == {1.0}:
        return None

    def scaled(name: str, room: float | Floats) -> Integers:
        lengths = np.rint(getattr(requests, name) * times[name])
        return np.asarray(np.clip(lengths, 1, np.maximum(room, 1)).astype(np.int64))

    prompt = scaled("prompt_tokens", most - 1)
    hits = np.rint(np.maximum(requests.cached_tokens, 0) * times["prompt_tokens"])
    then = replace(
        requests,
        prompt_tokens=prompt,
        generation_tokens=scaled("generation_tokens", np.asarray(most - prompt)),
        cached_tokens=np.minimum(hits.astype(np.int64), prompt - 1),
        shared_prefix_tokens=np.minimum(requests.shared_prefix_tokens, prompt),
    )
    return capacity(replace(draw, requests=then), draw.configuration, situation.slo, near)


def _row(
    situation: Situation,
    what_if: Mapping[str, float],
    other: Callable[[Draw], Draw],
    near: float | None = None,
) -> Candidate:
    """Today's settings in other draws."""
    outlook = situation.outlook
    then = Outlook([other(d) for d in outlook.draws[:_DRAWS]], outlook.slo, outlook.with_knobs)
    shares, likeliest = then.shares({}).clip(0.0), then.draws[0]
    today, every = outlook.shares({}, range(_DRAWS)).mean(), outlook.shares({}).mean()
    # from these draws to all: the same part of the misses is cured, or of the hits is lost
    share = shares.mean()
    cured = 1.0 if share >= 1.0 else (share - today) / (1.0 - today) if share >= today else 0.0
    share = every + cured * (1.0 - every) if share >= today else every * share / today
    limit = None
    if near is not None:
        limit = capacity(likeliest, likeliest.configuration, outlook.slo, near)
    return Candidate(
        what_if,
        in_target_ratio=float(share),
        in_target_low_ratio=float(shares.min()),
        in_target_high_ratio=float(shares.max()),
        capacity_requests_per_second=limit,
        reasons=dict.fromkeys(_NOT_SIMULATED, _ONLY),
    )
