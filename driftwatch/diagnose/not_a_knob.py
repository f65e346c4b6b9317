"""When no knob can help: the engine, its GPU or its router lost something."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from driftwatch.diagnose.states import HALF_OF_SCRAPES
from driftwatch.minutes.engine import STUCK_SECONDS
from driftwatch.model import Advice, Reason

# leaf of the shipped trees → what the engine or its surroundings lost
_LEAVES = {
    "engine_stuck": "requests are present and no token comes",
    "version_change": "slower at equal load than before the release changed",
    "gpu_throttled": "slower at equal load with the GPU clock down",
    "spec_decode_acceptance_fell": "fewer drafted tokens are accepted than in the baseline",
    "prefix_cache_collapse": "prefix-cache hits fell, so that prompts are computed anew",
    "replica_slow": "slower at equal load than its peers",
    "scheduler_regression": "slower at equal load without a measured cause",
    "deferred_admission": "requests are deferred by LoRA slots, KV transfer or grammar",
    "replica_imbalance": "requests wait here while a peer has free slots",
}
_UNEXPLAINED = ("replica_slow", "scheduler_regression")
_SPEED, _PEERS = "speed_at_equal_load_ratio", "speed_against_pool_ratio"
_SPEED_OF = dict.fromkeys(("version_change", "gpu_throttled", "scheduler_regression"), _SPEED)
SPEED_LEAVES = frozenset((*_SPEED_OF, "replica_slow"))
_OLD_RELEASE = re.compile(r"(\S+ \S+) → \S+")
# Kinds of engines that the simulation does not model.
_NOT_SIMULATED = {
    "pooling": "a pooling engine",
    "prefill_only": "a prefill-only engine",
    "decode_only": "a decode-only engine",
}


def not_a_knob(evidence: Mapping[str, Any], leaf: str | None) -> Advice | None:
    """The advice, without a simulation, where no knob can help; None where one may."""
    why = no_knob_because(evidence, leaf)
    if why is not None:
        return Advice(action="none", reason=Reason("engine", why))
    kind = _NOT_SIMULATED.get(evidence.get("engine_kind") or "")
    if kind is not None:
        text = (
            f"not applicable: {kind}; the simulation models only engines that compute prompts and "
            "generate"
        )
        return Advice(action="insufficient", reason=Reason("engine_kind", text))
    return None


def no_knob_because(evidence: Mapping[str, Any], leaf: str | None) -> str | None:
    """Why no knob can help, by the evidence or by the leaf; None where one may."""
    if lost := evidence.get("gpus_lost"):
        return f"{lost:.0f} GPU{'s are' if lost > 1 else ' is'} lost"
    if leaf in _LEAVES:
        column = _PEERS if leaf == "replica_slow" else _SPEED_OF.get(leaf)
        todo = "; look for what changed there, or drain it" if leaf in _UNEXPLAINED else ""
        old = _OLD_RELEASE.match(evidence.get("release_change") or "")
        if old and leaf == "version_change":
            todo = f" ({old[0]}): go back to {old[1]}, then run driftwatch recommend again"
        return f"{_part(evidence.get(column or ''))}{_LEAVES[leaf]}{todo}"
    silent = evidence.get("seconds_since_last_token")
    if silent is not None and silent >= STUCK_SECONDS:
        return f"no token for {silent:.0f} s"
    for slower, text, column in (
        ("slower_at_equal_load", "slower at equal load", _SPEED),
        ("slower_than_pool", "slower than its peers", _PEERS),
    ):
        if evidence.get(slower):
            add = "; add a replica" if evidence.get("slo_missed") else ""
            return f"the engine is {_part(evidence.get(column))}{text}{add}"
    if evidence.get("engine_kind") == "decode_only":
        return None  # deferring every request is normal here: it waits for KV caches
    deferred = evidence.get("waiting_deferred_share_10m_ratio")
    if evidence.get("binding_limit") == "deferred" or (
        deferred is not None and deferred >= HALF_OF_SCRAPES
    ):
        return _LEAVES["deferred_admission"]
    return None


def _part(speed_ratio: float | None) -> str:
    """How much slower, before the word; empty where that is unknown or it is not."""
    return "" if speed_ratio is None or speed_ratio >= 1 else f"{100 * (1 - speed_ratio):.0f} % "
