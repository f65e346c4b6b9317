"""The closed-form value of one knob, or an honest "none".

A starting value and a check (recommendation.md, "Which limit binds"); a later release replays the
observed traffic before it recommends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from driftwatch.diagnose.tree import Leaf
from driftwatch.model import Diagnosis, Recommendation, Serving, Setting

# CUDA-graph capture sizes (vLLM 0.32 config/vllm.py _set_cudagraph_sizes): 1, 2, 4, 8 to 248 in
# steps of 8, from 256 in steps of 16; a batch is padded up to the next one.
_SMALL_SIZES = (1, 2, 4)
# recommendation.md, "What really helps": from B = 2048 the best knob gives back 3-5 % and inter-
# token latency pays for it (vllm #17885: throughput -27 % on an A100 70B; vllm #2509: KV blocks).
BUDGET_WORTH_RAISING_BELOW_TOKENS = 2048
_GROWTH_MIN, _GROWTH_MAX = 2.0, 8.0


def capture_size_at_least(requests: float) -> int:
    """The smallest CUDA-graph capture size that holds ``requests``.

    >>> capture_size_at_least(38.5), capture_size_at_least(249), capture_size_at_least(3)
    (40, 256, 4)
    """
    for size in _SMALL_SIZES:
        if requests <= size:
            return size
    step = 8 if requests <= 248 else 16
    return math.ceil(requests / step) * step


def _capture_size_at_most(requests: float) -> int:
    """The largest capture size not above ``requests``; 0 below 1."""
    if requests < 8:
        return max((size for size in _SMALL_SIZES if size <= requests), default=0)
    step = 8 if requests < 256 else 16
    return math.floor(requests / step) * step


def recommend(
    leaf: Leaf | None, diagnosis: Diagnosis, evidence: Mapping[str, Any], serving: Serving
) -> Recommendation:
    """One change, or none with the reason: where a GPU is lost, no knob is the answer.

    Args:
        leaf: the leaf that was reached; None where the walk ended undetermined.
        diagnosis: how it was reached.
        evidence: the row, with ``binding_requests`` and the ``allows_*`` columns.
        serving: settings with their provenance; an inferred max_num_seqs comes from the row.
    """
    lost = evidence.get("gpus_lost")
    if lost and (leaf is None or leaf.kind == "change"):
        many = "1 GPU is" if lost == 1 else f"{_number(lost)} GPUs are"
        return Recommendation("none", reason=f"do not change a knob; {many} lost")
    if leaf is None:
        named = ", ".join(diagnosis.missing) or "its inputs"
        return Recommendation("none", reason=f"undetermined: {named} unknown")
    if leaf.kind != "change":
        return Recommendation("none", reason=leaf.advice or leaf.meaning)
    if _only_tpot_missed(evidence):
        return Recommendation(
            "none",
            reason="do not change a knob: TTFT is in target and TPOT is not, and a larger batch "
            "makes TPOT worse; add replicas or send less",
        )
    if leaf.knob == "max_num_seqs":
        return _raise_max_num_seqs(evidence, serving)
    if leaf.knob == "max_num_batched_tokens":
        return _raise_max_num_batched_tokens(evidence, serving)
    return Recommendation("none", reason=f"no closed form for {leaf.knob}")


def _only_tpot_missed(evidence: Mapping[str, Any]) -> bool:
    """The time per output token misses its target while the time to first token meets its own.

    Judged by the bounds that the buckets allow: TTFT surely met (lower bound), TPOT surely missed
    (upper bound). Without a TTFT target nothing asks for a shorter queue either.
    """
    share = evidence.get("slo_share")
    tpot = evidence.get("tpot_in_target_10m_upper_ratio")
    if share is None or tpot is None or tpot >= share:
        return False
    if evidence.get("slo_ttft_seconds") is None:
        return True
    ttft = evidence.get("ttft_in_target_10m_ratio")
    return ttft is not None and ttft >= share


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _cap_in_force(
    evidence: Mapping[str, Any], serving: Serving
) -> tuple[str, Setting] | tuple[str, None]:
    """The argument that caps the running set, with its value.

    That is max_num_active_seqs where it is set lower: above it max_num_seqs changes nothing.
    """
    active, seqs = serving.max_num_active_seqs, serving.max_num_seqs
    if active is not None and (seqs is None or active.value < seqs.value):
        return "max_num_active_seqs", active
    if seqs is not None:
        return "max_num_seqs", seqs
    if evidence.get("max_num_seqs_inferred") and evidence.get("max_num_seqs") is not None:
        inferred = Setting(evidence["max_num_seqs"], "inferred", "plateau of running requests")
        return "max_num_seqs", inferred
    return "max_num_seqs", None


def _raise_max_num_seqs(evidence: Mapping[str, Any], serving: Serving) -> Recommendation:
    """mean(running + waiting) over the binding scrapes, 2S to 8S, the next capture size.

    Never above what the KV cache holds, nor above the token budget's N where B is known, nor
    above B itself (vLLM refuses B < S), nor max_num_active_seqs above max_num_seqs.
    """
    knob, setting = _cap_in_force(evidence, serving)
    demand = evidence.get("binding_requests")
    if setting is None:
        return Recommendation("none", reason=f"{knob} unknown")
    if demand is None:
        return Recommendation("none", reason="how many requests ran or waited is unknown")
    now = setting.value
    wanted = capture_size_at_least(min(max(demand, _GROWTH_MIN * now), _GROWTH_MAX * now))
    ceilings = {
        "KV cache": evidence.get("allows_kv_cache"),
        "token budget": evidence.get("allows_max_num_batched_tokens"),
        "max_num_batched_tokens": evidence.get("max_num_batched_tokens"),
    }
    if knob == "max_num_active_seqs" and serving.max_num_seqs is not None:
        ceilings["max_num_seqs"] = serving.max_num_seqs.value
    known = {name: value for name, value in ceilings.items() if value is not None}
    tightest = min(known, key=lambda name: known[name], default=None)
    if tightest is not None and wanted > known[tightest]:
        wanted = _capture_size_at_most(known[tightest])
    if wanted <= now:
        return Recommendation(
            "none",
            reason=f"do not raise {knob}: the {tightest} holds "
            f"{_number(known[tightest or ''])} requests at these lengths",
        )
    price = ["restart"]
    if evidence.get("itl_seconds_mean") is not None and evidence.get("running_requests"):
        price.append(f"ITL rises with the batch (now {evidence['itl_seconds_mean'] * 1000:.3g} ms)")
    if evidence.get("max_num_batched_tokens") is None:
        price.append(f"max_num_batched_tokens (unknown) must be at least {wanted}")
    kv = evidence.get("allows_kv_cache")
    if kv is not None:
        price.append(f"KV holds {_number(kv)} requests")
    else:
        price.append("KV room unknown: kv_cache_tokens not on the page")
    return Recommendation(
        "change",
        knob=knob,
        from_value=now,
        from_provenance=setting.provenance,
        to_value=float(wanted),
        reason=f"{_number(demand)} requests were running or waiting while it bound",
        price=tuple(price),
        undo=f"--{knob.replace('_', '-')} {_number(now).replace(',', '')}",
        wrong_if="requests still wait for capacity at this rate after the restart",
    )


def _raise_max_num_batched_tokens(evidence: Mapping[str, Any], serving: Serving) -> Recommendation:
    """The budget whose N holds the demand: N·(E[P](1-h) + E[G]) / E[G], a power of two.

    Doubled at least, eightfold at most, and not above 2048 tokens: there the gain ends.
    """
    setting = serving.max_num_batched_tokens
    demand = evidence.get("binding_requests")
    allows = evidence.get("allows_max_num_batched_tokens")
    if setting is None:
        return Recommendation("none", reason="max_num_batched_tokens unknown")
    if demand is None:
        return Recommendation("none", reason="how many requests ran or waited is unknown")
    now = setting.value
    if now >= BUDGET_WORTH_RAISING_BELOW_TOKENS:
        return Recommendation(
            "none",
            reason=f"do not change a knob: from {BUDGET_WORTH_RAISING_BELOW_TOKENS} tokens a "
            "larger budget gives back 3–5 % and costs inter-token latency; add replicas or cache "
            "prefixes",
        )
    if not allows:
        return Recommendation("none", reason="no finished requests to size the budget by")
    needed = now * demand / allows
    wanted = 2 ** math.ceil(math.log2(min(max(needed, _GROWTH_MIN * now), _GROWTH_MAX * now)))
    wanted = min(wanted, BUDGET_WORTH_RAISING_BELOW_TOKENS)
    return Recommendation(
        "change",
        knob="max_num_batched_tokens",
        from_value=now,
        from_provenance=setting.provenance,
        to_value=float(wanted),
        reason=f"{_number(demand)} requests were running or waiting while the budget allowed "
        f"{_number(allows)}",
        price=(
            "restart",
            "longer steps: ITL p99 rises with the budget",
            "fewer KV blocks: the profile run grows with the budget",
        ),
        undo=f"--max-num-batched-tokens {_number(now).replace(',', '')}",
        wrong_if="requests still wait for capacity at this rate after the restart",
    )
