"""Why evidence is unknown or only a bound: one reason a column. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftwatch.detect.lengths import LENGTHS, MIN_REQUESTS
from driftwatch.detect.reference import RATIOS
from driftwatch.diagnose.limits import contradictions
from driftwatch.evidence import BY_NAME, Column
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.model import Reason
from driftwatch.numbers import percent_range
from driftwatch.signals.gpus import reasons_of


def reasons(row: Mapping[str, Any]) -> dict[str, str]:
    """Column → why it is unknown or only a bound."""
    unknown = {
        name: _default_reason(column) for name, column in BY_NAME.items() if row.get(name) is None
    }
    if is_own_proposal(row):
        unknown = {
            n: _PROPOSED if why.code == _PROPOSED.code else why for n, why in unknown.items()
        }
    reason_of = {name: why.text for name, why in unknown.items()}
    reason_of |= reasons_of(row.get("gpu_reasons"))
    reason_of |= {name: why for name, why in _ratio_reasons(row).items() if name in reason_of}
    if speed := row.get("speed_unknown_reason"):
        speeds = ("speed_at_equal_load_ratio", "slower_at_equal_load")
        reason_of |= dict.fromkeys((name for name in speeds if name in reason_of), speed)
    if "tokens_per_second_per_gpu" in reason_of and row.get("gpu_count") is not None:
        reason_of["tokens_per_second_per_gpu"] = "generation_tokens_per_second unknown"
    if "slo_missed" in reason_of:
        reason_of["slo_missed"] = why_slo_unknown(row)
    if row.get("binding_limit") is None and (row.get("waiting_capacity_requests") or 0) > 0:
        reason_of["binding_limit"] = _which_limit(row)
    if row.get("forward_passes_overcounted"):
        for name in ("requests_per_forward_pass", "tokens_per_forward_pass"):
            reason_of[name] = "a lower bound: several API servers count each step once each"
    reason_of |= contradictions(row)
    if row.get("max_num_seqs_inferred"):
        reason_of["max_num_seqs"] = "inferred from the plateau of running requests"
    for state, inputs in _INPUTS_OF_STATE.items():
        missing = next((name for name in inputs if name in reason_of), None)
        if state in reason_of and missing is not None:
            reason_of[state] = f"{missing} unknown: {reason_of[missing]}"
    return reason_of


# state → the columns that it needs; the first unknown one is its reason
_INPUTS_OF_STATE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("lengths_moved", "phase_mix"), tuple(f"{of}_mean_ratio" for of in LENGTHS)),
    "slower": ("slower_at_equal_load",),
    "held_back": ("slo_missed", "limit_binding_share_10m_ratio"),
    "drafts_rejected": ("reference_tokens_per_output", "tokens_per_output"),
    "prefix_hits_lost": ("prefix_cache_hit_ratio", "reference_prefix_cache_hit_ratio"),
}


_PROVISIONAL = "provisional"
# for commands on a recording, where nobody can accept a baseline
OWN_PROPOSAL = "no accepted baseline, and driftwatch's own proposal covers only the speed"
_PROPOSED = Reason("no_baseline", OWN_PROPOSAL)


def _default_reason(column: Column) -> Reason:
    """The default reason of an unknown column."""
    code = "no_baseline" if column.baseline_only else "no_input"
    return Reason(code, column.disabled_by or "not on the page")


def is_own_proposal(row: Mapping[str, Any]) -> bool:
    """Whether a proposed, not accepted load model judges the speed."""
    return _PROVISIONAL in (row.get("speed_reference") or "")


_NO_LENGTHS = "no baseline (driftwatch baseline list, --baseline FROM..TO, or tuned_for)"


def _ratio_reasons(row: Mapping[str, Any]) -> dict[str, str]:
    """Ratio column → why it is NULL: no baseline (for this signal), or too few requests."""
    kind = row.get("reference_kind")
    ratios = {ratio: column for ratio, (column, was) in RATIOS.items() if was == column}
    ratios |= {f"{name}_mean_ratio": f"{name}_mean" for name in LENGTHS}
    reason_of = {}
    for ratio, column in ratios.items():
        if kind is None:
            is_length = column.removesuffix("_mean") in LENGTHS
            reason_of[ratio] = _NO_LENGTHS if is_length else BY_NAME[ratio].disabled_by
        elif row.get(f"reference_{column}") is None:
            reason_of[ratio] = (
                f"tuned_for does not say {column}"
                if kind == "tuned_for"
                else f"the baseline has no {column}"
            )
        elif row.get(column) is None:
            reason_of[ratio] = f"{column} unknown"
        else:
            reason_of[ratio] = f"fewer than {MIN_REQUESTS} finished requests in the window"
    for name in LENGTHS:
        reason_of[f"{name}_usual_ratio"] = _swing_reason(row, name)
    return reason_of


def _swing_reason(row: Mapping[str, Any], name: str) -> str:
    """Why a mean length cannot be compared with the baseline's swings."""
    kind = row.get("reference_kind")
    if kind is None:
        return "no baseline"
    if kind == "tuned_for":
        return "tuned_for has a mean without its swings; a baseline has them"
    if not row.get(f"reference_{name}_swing_high"):
        return "the baseline has less than an hour of ten-minute means of 100 requests and more"
    return "the baseline is shorter than a day, so it does not have a day's swings"


def _which_limit(row: Mapping[str, Any]) -> str:
    """Why it is unknown which limit makes requests wait."""
    if row.get("kv_cache_usage_ratio") is None:
        return "requests wait, but vllm:kv_cache_usage_perc is missing: the KV cache may be full"
    unknown = [name for name in COLUMN_KNOBS if row.get(name) is None]
    if unknown:
        return f"requests wait, but {' and '.join(unknown)} unknown"
    running = row.get("binding_running_requests")
    level = "" if running is None else f" while {running:.3g} run"
    limits = " and ".join(f"{name} {row[name]:.0f}" for name in COLUMN_KNOBS)
    return f"requests wait{level}, yet {limits} are not full: does the server run with these?"


def why_slo_unknown(row: Mapping[str, Any]) -> str:
    """Why ``slo_missed`` is unknown."""
    targets = [name for name in ("ttft", "tpot") if row.get(f"slo_{name}_seconds") is not None]
    if not targets:
        return "no slo in the configuration"
    undecided = []
    for name in targets:
        low, high = (row.get(f"{name}_in_target_10m_{end}") for end in ("ratio", "upper_ratio"))
        if low is None:
            why = "fewer than 20 requests to judge by, or no bucket edge near its target"
            undecided.append(f"{name.upper()}: {why}")
        elif high is not None and low < (row.get("slo_share") or 0.0) <= high:
            why = "requests met it; its target lies inside a histogram bucket"
            undecided.append(f"{name.upper()}: {percent_range(low, high)} of {why}")
    return "; ".join(undecided) or "a target lies inside a histogram bucket"
