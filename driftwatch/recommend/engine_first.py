"""Where no knob is the answer before anything is replayed: the engine, its GPU or its router."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftwatch.model import Reason, Recommendation
from driftwatch.recommend.advice import Question

# Leaves of the shipped trees at which the engine or its surroundings lost something: a knob would
# hide it (recommendation.md, "The tree").
_LEAVES = {
    "engine_stuck": "requests are present and no token comes",
    "version_change": "slower at equal load than before the release changed",
    "gpu_throttled": "slower at equal load with the GPU clock down",
    "spec_decode_acceptance_fell": "fewer drafted tokens are accepted than in the baseline",
    "prefix_cache_collapse": "prefix-cache hits fell, so that prompts are computed anew",
    "replica_slow": "slower at equal load than its twins",
    "scheduler_regression": "slower at equal load without a cause that is measured",
    "deferred_admission": "requests are deferred by LoRA slots, KV transfer or grammar",
    "replica_imbalance": "requests wait here while a twin has free slots",
}
# Kinds of engines whose requests the replay does not know.
_NOT_REPLAYED = {
    "pooling": "a pooling engine",
    "prefill_only": "a prefill-only engine",
    "decode_only": "a decode-only engine",
}
STUCK_SECONDS = 120.0  # detection.md, EngineStuck
_DEFERRED_SHARE = 0.5  # of the scrapes of 10 minutes, as the tree asks


def not_a_knob(question: Question) -> Recommendation | None:
    """A verdict without a replay where a knob cannot be the answer; None where it may be."""
    why = no_knob_because(question.evidence, question.leaf)
    if why is not None:
        return Recommendation("none", Reason("engine", why))
    kind = _NOT_REPLAYED.get(question.evidence.get("engine_kind") or "")
    if kind is not None:
        text = f"not applicable: {kind}; the replay knows engines that compute their prompts and "
        return Recommendation("insufficient", Reason("engine_kind", f"{text}generate"))
    return None


def _with_speed(why: str, evidence: Mapping[str, Any]) -> str:
    """By how much, where an engine is slower; and what to do, where no cause is measured."""
    against_twins = why == _LEAVES["replica_slow"]
    name = "speed_against_pool_ratio" if against_twins else "speed_at_equal_load_ratio"
    speed, slower = evidence.get(name), why.partition("slower ")
    said = why if speed is None or not slower[1] else f"{why}: {100 * (1 - speed):.0f} %"
    unexplained = why in (_LEAVES["scheduler_regression"], _LEAVES["replica_slow"])
    return f"{said}; look for what changed there, or drain it" if unexplained else said


def no_knob_because(evidence: Mapping[str, Any], leaf: str | None) -> str | None:
    """Why no knob can be the answer, by the evidence or by the leaf; None where one may be."""
    if lost := evidence.get("gpus_lost"):
        return f"{lost:.0f} GPU{'s are' if lost > 1 else ' is'} lost"
    if leaf in _LEAVES:
        return _with_speed(_LEAVES[leaf], evidence)
    silent = evidence.get("seconds_since_last_token")
    if silent is not None and silent >= STUCK_SECONDS:
        return f"no token for {silent:.0f} s"
    if evidence.get("slower_at_equal_load"):
        speed = evidence.get("speed_at_equal_load_ratio")
        return "slower at equal load" + (f" (r {speed:.2f})" if speed is not None else "")
    if evidence.get("slower_than_pool"):
        speed = evidence.get("speed_against_pool_ratio")
        return "slower than its twins" + (f" (r {speed:.2f})" if speed is not None else "")
    if evidence.get("engine_kind") == "decode_only":
        return None  # it waits for every request's KV cache: that is no cause
    deferred = evidence.get("waiting_deferred_share_10m_ratio")
    if evidence.get("binding_limit") == "deferred" or (
        deferred is not None and deferred >= _DEFERRED_SHARE
    ):
        return _LEAVES["deferred_admission"]
    return None
