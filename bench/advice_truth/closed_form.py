"""The advice of releases before the replay: the closed form of the knob whose limit binds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from driftwatch.recommend.sweep_values import capture_size_at_least

_LEAST, _MOST = 2.0, 8.0  # times today's value
_BUDGET_ENDS = 2048  # from there a larger budget gives back 3 to 5 %


def closed_form(evidence: Mapping[str, Any], max_num_seqs: int, budget: int) -> dict[str, int]:
    """max_num_seqs: running and waiting requests of the binding scrapes, up to a capture size and
    not above what KV cache and budget hold. max_num_batched_tokens: so many times larger as the
    demand is above what it allows, a power of two up to 2048. Nothing where neither binds.

    Args:
        evidence: row of the question's window.
        max_num_seqs: today's.
        budget: today's max_num_batched_tokens.
    """
    limit, demand = evidence.get("binding_limit"), evidence.get("binding_requests")
    if demand is None:
        return {}
    if limit == "max_num_seqs":
        wanted = min(max(demand, _LEAST * max_num_seqs), _MOST * max_num_seqs)
        ceilings = [evidence.get("allows_kv_cache"), evidence.get("allows_max_num_batched_tokens")]
        known = [value for value in (*ceilings, budget) if value is not None]
        value = min([capture_size_at_least(wanted), *(int(one) for one in known)])
        return {"max_num_seqs": value} if value > max_num_seqs else {}
    allows = evidence.get("allows_max_num_batched_tokens")
    if limit == "max_num_batched_tokens" and allows and budget < _BUDGET_ENDS:
        wanted = min(max(budget * demand / allows, _LEAST * budget), _MOST * budget)
        return {"max_num_batched_tokens": min(2 ** math.ceil(math.log2(wanted)), _BUDGET_ENDS)}
    return {}
