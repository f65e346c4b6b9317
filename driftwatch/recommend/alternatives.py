"""What helps where no knob does, with its share in target and its capacity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from driftwatch.knobs import KNOBS
from driftwatch.model import Slo
from driftwatch.recommend.advice import Candidate, Question
from driftwatch.recommend.demand import cached
from driftwatch.recommend.forecast import Draw, Outlook, capacity
from driftwatch.recommend.search import refusal
from driftwatch.recommend.server import Knobs
from driftwatch.recommend.situation import Situation, row_of

PREFIX_HIT_RATIO, REPLICAS, FP8_KV = "prefix_hit_ratio", "replicas", "kv_cache_dtype_fp8"
WHAT_IFS = (*KNOBS, REPLICAS, PREFIX_HIT_RATIO, FP8_KV)
HALF_CACHED = 0.5
_MOST_TIMES_REPLICAS = 9  # times today's: more is no question of replicas
_NUMBERS = 4  # of replicas that are tried
_DRAWS = 4  # of each: a share to a few points
_TODAY: Knobs = {}
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
    """Cached prefixes, an fp8 KV cache: as far as each applies."""
    limit, found = today.capacity_requests_per_second, list[Candidate]()
    if situation.settings.configurations[0].enable_prefix_caching:
        found.append(with_what_if(situation, {PREFIX_HIT_RATIO: HALF_CACHED}, limit))
    if situation.settings.configurations[0].num_gpu_blocks is not None:
        found.append(with_what_if(situation, {FP8_KV: 1.0}, limit))
    return found


def enough_replicas(
    situation: Situation, limit: float | None, knobs: Knobs = _TODAY
) -> Candidate | None:
    """One replica more than today at least: the fewest that meet the targets, of at most four
    numbers between those that serve this demand and one more than serve the highest of the draws;
    else the most of them. None = far too many, or ``limit`` is unknown or 0.

    ``limit``: requests a second that each serves in target with these knobs.
    """
    have, row = situation.question.replicas or 1, None
    if not limit:
        return None
    least, most = (
        max(have + 1, replicas_for(times * have * situation.offered, limit))
        for times in (1.0, max(draw.demand for draw in situation.outlook.draws))
    )
    for n in dict.fromkeys(np.linspace(least, most + 1, _NUMBERS).round()):
        if n > _MOST_TIMES_REPLICAS * have:
            break
        more = with_what_if(situation, {**knobs, REPLICAS: float(n)}, None)
        row = replace(more, capacity_requests_per_second=limit)
        if meets(situation, row):
            break
    return row


def meets(situation: Situation, row: Candidate) -> bool:
    """Whether the share of requests in target that is asked for is forecast."""
    return (row.in_target_ratio or 0.0) >= (situation.slo or Slo()).share


def asked_for(situation: Situation, today: Candidate) -> list[Candidate]:
    """The question's what-ifs, all together as one configuration."""
    what_if, limit = situation.question.what_if, today.capacity_requests_per_second
    knobs = {name: value for name, value in what_if.items() if name in KNOBS}
    refused = refusal(situation.settings.configurations[0], knobs)
    if what_if.get(FP8_KV) and situation.settings.configurations[0].num_gpu_blocks is None:
        refused = "the KV block count is unknown"
    if refused:
        return [Candidate(what_if, refused=refused)]
    if not what_if or knobs == what_if:
        return [row_of(situation, knobs, limit)] if knobs else []
    return [with_what_if(situation, what_if, limit)]


def with_what_if(
    situation: Situation, what_if: Mapping[str, float], near: float | None
) -> Candidate:
    """Today's settings with other knobs, each replica's share of the arrivals, that share of every
    prompt cached, and twice the KV blocks: as far as each is asked for.

    ``near``: where to begin to look for its capacity; None = its capacity is not asked for.
    """
    outlook, question = situation.outlook, situation.question
    knobs = {name: value for name, value in what_if.items() if name in KNOBS}
    then = Outlook(
        [_other(draw, what_if, question) for draw in outlook.draws[:_DRAWS]],
        outlook.slo,
        outlook.with_knobs,
    )
    shares, likeliest = then.shares(knobs).clip(0.0), then.draws[0]
    today, every = outlook.shares({}, range(_DRAWS)).mean(), outlook.shares({}).mean()
    # from these draws to all: the same part of the misses is cured, or of the hits is lost
    share = shares.mean()
    cured = 1.0 if share >= 1.0 else (share - today) / (1.0 - today) if share >= today else 0.0
    share = every + cured * (1.0 - every) if share >= today else every * share / today
    limit = None
    if near is not None:
        settings = outlook.with_knobs(likeliest.configuration, knobs)
        limit = capacity(likeliest, settings, outlook.slo, near)
    return Candidate(
        what_if,
        in_target_ratio=float(share),
        in_target_low_ratio=float(shares.min()),
        in_target_high_ratio=float(shares.max()),
        capacity_requests_per_second=limit,
        reasons=dict.fromkeys(_NOT_SIMULATED, _ONLY),
    )


def _other(draw: Draw, what_if: Mapping[str, float], question: Question) -> Draw:
    """A draw with replicas, cached prefixes and KV blocks as asked for."""
    requests, settings, share = draw.requests, draw.configuration, 1.0
    if REPLICAS in what_if:
        share = (question.replicas or 1) / max(1, round(what_if[REPLICAS]))
        requests = requests.at(requests.arrival_seconds / share)
    if PREFIX_HIT_RATIO in what_if:
        rng, block = np.random.default_rng(question.seed), question.server.block_tokens
        hits = cached(requests.prompt_tokens, what_if[PREFIX_HIT_RATIO], block, rng)
        requests = replace(requests, cached_tokens=hits)
        settings = replace(settings, enable_prefix_caching=True)
    if what_if.get(FP8_KV):
        settings = replace(settings, num_gpu_blocks=2 * (settings.num_gpu_blocks or 0))
    seconds = draw.seconds / share
    return replace(draw, requests=requests, seconds=seconds, configuration=settings)
