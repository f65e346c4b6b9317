"""A finding's measurements, in the form of a page and ``explain``. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from driftwatch.evidence import BY_NAME, COLUMNS
from driftwatch.model import Diagnosis, Finding, Slo, Step
from driftwatch.notify.page import Amount, Baseline
from driftwatch.numbers import utc_text

_NO_INPUT = "not in the scrapes of the window"
_INSIDE_BUCKET = "a lower bound: the target lies inside a bucket, see upper"
_NOT_FINITE = "not a finite number"


def baseline_of(finding: Finding) -> Baseline | None:
    """The finding's baseline; None without one."""
    if (reference := finding.reference) is None:
        return None
    return Baseline(
        kind=str(reference.get("kind", "baseline")),
        since=reference.get("from"),
        until=reference.get("to"),
        values=json_value(reference.get("values", {})),
    )


def amounts(finding: Finding) -> dict[str, Amount]:
    """Every evidence column → value, unit and reason, in schema order."""
    return {column.name: _amount(column.name, finding) for column in COLUMNS}


def _amount(column: str, finding: Finding) -> Amount:
    raw, unit = finding.evidence.get(column), BY_NAME[column].unit
    value, reason, more = json_value(raw), finding.reasons.get(column), dict[str, Any]()
    # a target inside a bucket leaves a share between two bounds
    most = json_value(finding.evidence.get(column.replace("_10m_ratio", "_10m_upper_ratio")))
    if column.endswith("in_target_10m_ratio") and None not in (value, most) and most > value:
        more["upper"] = most
        reason = reason or _INSIDE_BUCKET
    if column == "gpus_lost" and value:
        more |= _which_gpus(finding.evidence)
    if column == "gpu_count":
        more["source"] = finding.evidence.get("gpu_count_source") or None
    if column == "max_num_seqs" and finding.evidence.get("max_num_seqs_inferred"):
        more["source"] = "inferred"
    if value is None and not reason:
        reason = _NOT_FINITE if raw is not None else BY_NAME[column].disabled_by or _NO_INPUT
    return Amount(value=value, unit=unit, reason=reason or None, **more)


def slo_in(evidence: Mapping[str, Any]) -> Slo | None:
    """The latency targets of an evidence row; None without any."""
    ttft, tpot = (evidence.get(f"slo_{name}_seconds") for name in ("ttft", "tpot"))
    if ttft is None and tpot is None:
        return None
    share = evidence.get("slo_share")
    return Slo(ttft, tpot, Slo().share if share is None else share)


def _which_gpus(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """The lost GPUs' names and the server's GPU count, where known."""
    names, of = evidence.get("gpus_lost_names"), json_value(evidence.get("gpus_of_server"))
    # a fraction, or fewer than the lost ones, is no count
    counted = of is not None and of == int(of) and of >= evidence["gpus_lost"]
    return ({"names": names} if names else {}) | ({"of": of} if counted else {})


def with_reasons(diagnosis: Diagnosis, reasons: Mapping[str, str]) -> Diagnosis:
    """The diagnosis; unknown steps without a reason get the row's."""
    return replace(diagnosis, path=tuple(_with_reason(step, reasons) for step in diagnosis.path))


def _with_reason(step: Step, reasons: Mapping[str, str]) -> Step:
    evidence = {name: json_value(amount) for name, amount in step.evidence.items()}
    step = replace(step, evidence=evidence, before=json_value(step.before))
    if step.reason or step.answer not in ("unknown", "not asked"):
        return step
    unknown = [name for name, amount in evidence.items() if amount is None]
    texts = [reasons[name] for name in unknown if name in reasons]
    why = "; ".join(dict.fromkeys(texts)) or f"{', '.join(unknown) or 'its inputs'} unknown"
    return replace(step, reason=why)


def json_value(raw: Any) -> Any:
    """A value for JSON: times as UTC text, NaN as None, floats stay floats."""
    if isinstance(raw, datetime):
        return utc_text(raw)
    if isinstance(raw, float):
        return float(raw) if math.isfinite(raw) else None  # NumPy's are floats, not JSON's
    if isinstance(raw, Mapping):
        return {str(key): json_value(raw[key]) for key in raw}
    if isinstance(raw, list | tuple):
        return [json_value(item) for item in raw]
    return raw if raw is None or isinstance(raw, bool | int | str) else str(raw)
