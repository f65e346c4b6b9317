"""One pool, one question: the servers of a pool that are configured and loaded alike.

Twins behind one balancer serve one traffic. Asked each by its own minutes they would be given two
capacities and two settings for one cause; asked together they have one answer: steps as the busiest
of them showed them, judged by the traffic of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.last_speed import since_slow
from driftwatch.pipeline.past_minutes import WINDOW, PastMinutes
from driftwatch.pipeline.plan import Plan

_KEY = list(KEY_COLUMNS)
MOST_SERVERS = 8  # the first by name, whose traffic is replayed one after the other
# Times or over: what two halves of one stretch of traffic may differ by (judged_stretch.py).
_ALIKE = 1.25
_RECENT = timedelta(minutes=10)
_LOAD = ("ttft_seconds_count", "prompt_tokens_total", "generation_tokens_total")


def twins_of(
    target: Target, targets: Mapping[TargetKey, Target], plan: Plan
) -> tuple[TargetKey, ...]:
    """The other servers of its pool that are configured as it is, as far as that is known."""
    if target.pool is None:
        return ()
    own = _configured(target, plan)
    of_pool = sorted(key for key, one in targets.items() if one.pool == target.pool)
    alike = (key for key in of_pool if _configured(targets[key], plan) == own)
    return tuple(key for key in islice(alike, MOST_SERVERS) if key != target.key)


def among(minutes: pl.DataFrame, keys: Sequence[TargetKey]) -> pl.DataFrame:
    """The rows of some targets."""
    of = pl.DataFrame([tuple(k) for k in keys], schema=dict.fromkeys(_KEY, pl.String), orient="row")
    return minutes.join(of, on=_KEY, how="semi", maintain_order="left")


def minutes_beside(
    target: Target, targets: Mapping[TargetKey, Target], plan: Plan, past: PastMinutes, at: datetime
) -> pl.DataFrame | None:
    """The minutes of a target's twins up to ``at``; None where it has none."""
    keys = twins_of(target, targets, plan)
    return pl.concat([past.judged(key, at - WINDOW, at) for key in keys]) if keys else None


def pooled(own: TargetKey, minutes: pl.DataFrame, at: datetime) -> dict[TargetKey, pl.DataFrame]:
    """The minutes of every server that an answer is of, the busiest first; the own alone at least.

    Args:
        own: who is asked about.
        minutes: of it and of its twins, with what the detectors said where that is known.
        at: end of the window.

    Returns:
        A frame a server, by time. The same for each of the servers, whoever is asked about.
    """
    frames = {
        TargetKey(*map(str, key)): since_slow(frame.sort("end"))
        for key, frame in minutes.partition_by(_KEY, as_dict=True, maintain_order=True).items()
    }
    loads = {key: _load(frame, at) for key, frame in frames.items()}
    known = {key: load for key, load in loads.items() if load is not None}
    alike = _alike(known)
    if own not in alike:
        return {own: frames[own]} if own in frames else {}
    return {key: frames[key] for key in sorted(alike, key=lambda key: (-known[key][0], key))}


def _alike(loads: Mapping[TargetKey, Sequence[float]]) -> list[TargetKey]:
    """Those whose rate and lengths are near the middle of all; without two of them none."""
    if len(loads) < 2:
        return []
    middles = [sorted(values)[len(values) // 2] for values in zip(*loads.values(), strict=True)]
    found = [
        key
        for key, values in loads.items()
        if all(
            middle / _ALIKE <= value <= middle * _ALIKE
            for value, middle in zip(values, middles, strict=True)
        )
    ]
    return found if len(found) > 1 else []


def _load(frame: pl.DataFrame, at: datetime) -> tuple[float, float, float] | None:
    """First tokens, and prompt and generation tokens a first token, of the last ten minutes."""
    recent = frame.filter(pl.col("end") > at - _RECENT).select(*_LOAD).drop_nulls()
    first, prompt, generation = recent.sum().row(0) if len(recent) else (0.0, 0.0, 0.0)
    if first <= 0:
        return None
    return float(first), float(prompt / first), float(generation / first)


def _configured(target: Target, plan: Plan) -> tuple[object, ...]:
    serving = plan.serving_of(target)
    settings = (serving.max_num_seqs, serving.max_num_batched_tokens, serving.kv_cache_tokens)
    return (target.labels.get("model_name"), *(None if s is None else s.value for s in settings))
