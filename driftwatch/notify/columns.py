"""Short names and values of evidence columns in text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
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

# column → its name in text; other columns print their own name
SHORT: Mapping[str, str] = {column.name: column.short for column in COLUMNS if column.short}


def name_of(column: str) -> str:
    """A column's name in text, without a value."""
    name = SHORT.get(column, column)
    return column if "{}" in name else name.rstrip(":")


def evidence_text(column: str, amount: Any, *, before: Any = None) -> str:
    """A value with its short name and unit.

    ``before``: the baseline's value, printed from → to.

    >>> evidence_text("batch_assembly_wait_10m_seconds", 1.655)
    'wait 1.66 s'
    >>> evidence_text("prompt_tokens_mean_ratio", 2.34)
    'prompts ×2.34'
    >>> evidence_text("lost_prefix_hits_prefill_ratio", 2.31)
    'prefill ×2.31 by lost hits'
    """
    name = SHORT.get(column, column)
    text = evidence_value(column, amount)
    if before is not None:
        was = evidence_value(column, before)
        unit = text.partition(" ")[2]
        text = f"{was.removesuffix(f' {unit}') if unit else was} → {text}"
    return name.replace("{}", text) if "{}" in name else f"{name} {text}"


# columns printed as multiples of the baseline
_TIMES = ("_mean_ratio", "_usual_ratio", "prefill_ratio")


def evidence_value(column: str, amount: Any) -> str:
    """The value alone, in a readable unit."""
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
        return change(amount) if "speed_a" in column else percent(amount)
    if unit == "seconds":
        if column == "queue_wait_estimate_10m_seconds":
            return queue_wait(amount)
        if column.startswith(("itl_", "tpot_")):
            return milliseconds(amount)
        return duration(amount) if amount >= 60 else seconds(amount, 3)
    if unit in ("requests", "tokens", "scrapes", "targets"):
        return count(amount)
    return f"{figure(amount)}/s" if unit == "1/s" else f"{figure(amount)} {unit}".rstrip()
