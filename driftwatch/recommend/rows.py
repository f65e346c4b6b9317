"""Rows of an answer: settings, simulated, with what a scraper would see of them."""

from __future__ import annotations

from dataclasses import asdict

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.recommend.advice import Candidate
from driftwatch.recommend.forecast import IMPOSSIBLE, capacity, figures
from driftwatch.recommend.server import Knobs
from driftwatch.recommend.situation import Situation

# a TTFT near capacity is a queue that any error of the rate makes another
NEAR_CAPACITY = 0.9
NEAR = "the load is above 90 % of capacity, where TTFT cannot be forecast"
GROWS = "the queue still grows when the simulation ends"


def row_of(situation: Situation, knobs: Knobs, near: float | None = None) -> Candidate:
    """One configuration: its share in target over the draws, the rest by the likeliest.

    ``near``: where to begin to look for its capacity.
    """
    outlook = situation.outlook
    shares = outlook.shares(knobs)
    if shares.min() <= IMPOSSIBLE:
        return Candidate(knobs, refused="requests of this window never fit the KV cache then")
    draw = outlook.draws[0]
    configuration = outlook.with_knobs(draw.configuration, knobs)
    try:
        seen = asdict(figures(draw, configuration))
    except (ImpossibleConfiguration, NoVerdict) as error:
        return Candidate(knobs, refused=str(error))
    keeps_up = seen.pop("keeps_up")
    reasons: dict[str, str] = {}
    limit = capacity(draw, configuration, outlook.slo, near)
    if seen["kv_cache_peak_ratio"] is None:
        reasons |= {"kv_cache_peak_ratio": "KV block count unknown", "kv_blocks": "not on the page"}
    why = None
    if limit is not None and situation.offered >= NEAR_CAPACITY * limit:
        why = NEAR
    elif not keeps_up:
        why = GROWS
    if why is not None:
        reasons |= {"ttft_seconds": why, "ttft_p95_seconds": why}
        seen |= {"ttft_seconds": None, "ttft_p95_seconds": None}
    ordered = sorted(shares)
    edge = len(ordered) // 10
    return Candidate(
        knobs,
        in_target_ratio=float(shares.mean()),
        in_target_low_ratio=float(ordered[edge]),
        in_target_high_ratio=float(ordered[-1 - edge]),
        capacity_requests_per_second=limit,
        kv_blocks=configuration.num_gpu_blocks,
        reasons=reasons,
        **seen,
    )
