"""Which evidence columns a page carries, and what they are called in a line of text.

As data: a page with all hundred columns is read by nobody. Besides these a page carries every
column that its path was decided on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from driftwatch.evidence import BY_NAME, COLUMNS
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.numbers import (
    change,
    clean,
    count,
    duration,
    figure,
    knob,
    milliseconds,
    percent,
    queue_wait,
    seconds,
    times,
)

# every page carries these: what moved, what a change of throughput is made of, how small a change
# would be noticed
_ALWAYS = (
    "observed_10m_seconds", "scrapes", "requests_per_second",
    "running_requests", "effective_batch_size", "requests_per_forward_pass", "waiting_requests",
    "kv_cache_usage_ratio", "prompt_tokens_mean", "generation_tokens_mean", "finished_requests",
    "max_num_seqs", "max_num_batched_tokens", "max_num_batched_tokens_exceeded", "restarted",
    "slower_at_equal_load", "speed_at_equal_load_ratio",
    "generation_tokens_per_second", "tokens_per_second_per_gpu", "itl_seconds_mean",
    "batch_assembly_wait_10m_seconds", "speed_smallest_detectable_loss_ratio",
)  # fmt: skip
# the groups that a rule's page names (driftwatch/rulebook/page_form.py)
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "lengths": (
        "prompt_tokens_mean_ratio", "generation_tokens_mean_ratio", "requests_per_second_ratio",
    ),
    "usual": ("prompt_tokens_usual_ratio", "generation_tokens_usual_ratio"),
    "cost": (
        "batch_assembly_wait_10m_seconds", "ttft_10m_seconds", "queue_wait_estimate_10m_seconds",
        "given_up_requests_10m", "given_up_10m_low_ratio",
        "slo_missed", "ttft_in_target_10m_ratio", "tpot_in_target_10m_ratio", "itl_seconds_mean",
        "generation_tokens_per_second", "tokens_per_second_per_gpu",
    ),
    "limits": (
        "binding_limit", "binding_margin_ratio", "limit_binding_share_10m_ratio", "scrapes_10m",
        "binding_running_requests", "binding_waiting_requests", "binding_kv_cache_usage_ratio",
        "tokens_per_forward_pass", "waiting_capacity_requests", "preemptions_per_second",
        "prefix_cache_hit_ratio",
    ),
    "deferred": ("waiting_deferred_requests", "waiting_deferred_share_10m_ratio"),
    "stuck": ("seconds_since_last_token", "generation_tokens_per_second"),
    "coverage": (
        "coverage_missing_seconds", "coverage_missing_inputs", "pool_coverage_missing_ratio",
    ),
    "gpu": (
        "gpu_count", "gpu_utilization_ratio", "gpu_power_watts", "gpu_sm_clock_hertz",
        "gpu_sm_clock_ratio", "gpu_clock_event_reasons", "gpus_lost",
        "tokens_per_second_per_gpu_ratio",
    ),
    "speed": ("slower_at_equal_load", "speed_at_equal_load_ratio", "speed_threshold_ratio"),
    "peers": ("slower_than_pool", "speed_against_pool_ratio", "pool_speed_at_equal_load_ratio"),
    "day": ("prompt_tokens_day_ratio", "generation_tokens_day_ratio"),
    "trend": ("speed_slope_14d_ratio", "speed_slope_14d_upper_ratio"),
}  # fmt: skip
_EVERYTHING = ("lengths", "cost", "limits", "deferred", "gpu")


def page_columns(wanted: Sequence[str]) -> frozenset[str]:
    """The evidence columns that a page carries besides those of its path.

    ``wanted``: groups and columns that its rule names; empty = the usual groups.
    """
    named = [_GROUPS.get(name, (name,)) for name in wanted or _EVERYTHING]
    return frozenset(_ALWAYS).union(*named)


# column → what a line of text calls it; without an entry the column's own name is printed
SHORT: Mapping[str, str] = {column.name: column.short for column in COLUMNS if column.short}


def name_of(column: str) -> str:
    """What a column is called where no value stands beside it."""
    name = SHORT.get(column, column)
    return column if "{}" in name else name.rstrip(":")


def evidence_text(
    column: str, amount: Any, reason: str | None = None, *, before: Any = None
) -> str:
    """One evidence value with its short name and unit; unknown is said with its reason.

    With the reference's value ``before``, from → to.

    >>> evidence_text("batch_assembly_wait_10m_seconds", 1.655)
    'wait 1.66 s'
    >>> evidence_text("prompt_tokens_mean_ratio", 2.34)
    'prompts ×2.34'
    >>> evidence_text("lost_prefix_hits_prefill_ratio", 2.31)
    'prefill ×2.31 by lost hits'
    >>> evidence_text("slo_missed", None, "no slo in the configuration")
    'target missed: unknown (no slo in the configuration)'
    """
    name = SHORT.get(column, column)
    if amount is None:
        return f"{name_of(column)}: unknown" + (f" ({clean(reason)})" if reason else "")
    text = evidence_value(column, amount)
    if before is not None:
        was = evidence_value(column, before)
        unit = text.partition(" ")[2]
        text = f"{was.removesuffix(f' {unit}') if unit else was} → {text}"
    return name.replace("{}", text) if "{}" in name else f"{name} {text}"


# how many times the reference's
_TIMES = ("_mean_ratio", "_usual_ratio", "prefill_ratio")


def evidence_value(column: str, amount: Any) -> str:
    """The value alone, in the unit a person reads."""
    if isinstance(amount, bool):
        return "yes" if amount else "no"
    if not isinstance(amount, int | float):
        return clean(str(amount))
    if column in COLUMN_KNOBS:
        return knob(amount)
    unit = BY_NAME[column].unit if column in BY_NAME else ""
    if unit == "1":
        if column.endswith(_TIMES):
            return times(amount, 3)
        if column in ("requests_per_second_ratio", "tokens_per_second_per_gpu_ratio"):
            return change(amount)
        return figure(amount) if "speed_at" in column else percent(amount)
    if unit == "seconds":
        if column == "queue_wait_estimate_10m_seconds":
            return queue_wait(amount)
        if column.startswith(("itl_", "tpot_")):
            return milliseconds(amount)
        return duration(amount) if amount >= 60 else seconds(amount, 3)
    if unit in ("requests", "tokens", "scrapes", "targets"):
        return count(amount)
    return f"{figure(amount)}/s" if unit == "1/s" else f"{figure(amount)} {unit}".rstrip()
