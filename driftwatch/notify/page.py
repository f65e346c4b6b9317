"""A finding and its incident → the page as JSON: what every receiver is given. Pure.

The schema is published (``docs/page.schema.json``) and versioned: fields are only added, units
stand in names or beside values, and a null value stands beside its reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from driftwatch.evidence import BY_NAME, COLUMNS
from driftwatch.model import Diagnosis, Finding, KnobMove, Reason, Recommendation
from driftwatch.notify.columns import page_columns
from driftwatch.numbers import utc_text

SCHEMA_VERSION = 2

# a notice tells and asks for nothing, whatever the diagnosis would advise
NOTICE_ADVISES_NOTHING = Reason("notice", "a notice asks for nothing to be done")

# the grid of the clock on which an answer that time may bring is asked for again
EVERY = timedelta(minutes=10)

_NO_INPUT = "not in the scrapes of the window"
_INSIDE_BUCKET = "a lower bound: the target lies inside a bucket, see upper"
_NOT_FINITE = "not a finite number"


def next_time(at: datetime) -> datetime:
    """The minute of the grid after a time.

    >>> [next_time(datetime(2026, 3, 1, 12, minute)).minute for minute in (3, 20)]
    [10, 30]
    """
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + ((at - midnight) // EVERY + 1) * EVERY


def evidence_json(finding: Finding, columns: Sequence[str] = ()) -> dict[str, Any]:
    """Column → value, unit and reason: the columns of the form and of the path, schema order."""
    path = finding.diagnosis.path if finding.diagnosis is not None else ()
    wanted = page_columns(columns).union(*(step.evidence for step in path))
    if finding.diagnosis is not None:
        wanted |= set(finding.diagnosis.missing)
    return {
        column.name: _entry(column.name, finding) for column in COLUMNS if column.name in wanted
    }


def _entry(column: str, finding: Finding) -> dict[str, Any]:
    raw = finding.evidence.get(column)
    amount = plain(raw)
    entry: dict[str, Any] = {"value": amount, "unit": BY_NAME[column].unit}
    reason = finding.reasons.get(column)
    # buckets bound a share whose target lies inside one of them
    most = plain(finding.evidence.get(column.replace("_10m_ratio", "_10m_upper_ratio")))
    if column.endswith("in_target_10m_ratio") and None not in (amount, most) and most > amount:
        entry["upper"] = most
        reason = reason or _INSIDE_BUCKET
    if column == "gpus_lost" and amount:
        entry |= _which_gpus(finding.evidence)
    if column == "gpu_count" and (source := finding.evidence.get("gpu_count_source")):
        entry["source"] = source
    if column == "max_num_seqs" and finding.evidence.get("max_num_seqs_inferred"):
        entry["source"] = "inferred"
    if amount is None and not reason:
        reason = _NOT_FINITE if raw is not None else BY_NAME[column].disabled_by or _NO_INPUT
    if reason:
        entry["reason"] = reason
    return entry


def _which_gpus(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Which GPUs are lost, and of how many of the server, where that is known."""
    names, of = evidence.get("gpus_lost_names"), plain(evidence.get("gpus_of_server"))
    # shares of a GPU are no count, and a number below what is lost is none either
    counted = of is not None and of == int(of) and of >= evidence["gpus_lost"]
    return ({"names": names} if names else {}) | ({"of": of} if counted else {})


def diagnosis_json(diagnosis: Diagnosis, reason_of: Mapping[str, str]) -> dict[str, Any]:
    """A diagnosis as JSON; an unknown step carries its reason from the row where it has none."""
    document: dict[str, Any] = plain(asdict(diagnosis))
    for step in document["path"]:
        step["reason"] = step["reason"] or _unknown_reason(step, reason_of)
    return document


def _unknown_reason(step: Mapping[str, Any], reasons: Mapping[str, str]) -> str | None:
    if step["answer"] not in ("unknown", "not asked"):
        return None
    unknown = [name for name, amount in step["evidence"].items() if amount is None]
    texts = [reasons[name] for name in unknown if name in reasons]
    return "; ".join(dict.fromkeys(texts)) or f"{', '.join(unknown) or 'its inputs'} unknown"


# fields of a recommendation and of a move → their keys in the JSON
_KEYS = {"from_value": "from", "to_value": "to"}


def recommendation_json(advised: Recommendation) -> dict[str, Any]:
    """The change, or why there is none, as JSON."""
    fields = {_KEYS.get(name, name): value for name, value in plain(asdict(advised)).items()}
    also = [{_KEYS.get(n, n): v for n, v in move.items()} for move in fields.pop("also")]
    fields |= {"reason": advised.reason.text, "reason_code": advised.reason.code}
    return fields | ({"also": also} if also else {})


def recommendation_of(document: Mapping[str, Any]) -> Recommendation:
    """A recommendation as a page's JSON has it (:func:`recommendation_json`)."""
    fields: dict[str, Any] = {n: document.get(_KEYS.get(n, n)) for n in _FIELDS}
    moves = [{n: move.get(_KEYS.get(n, n)) for n in _MOVE} for move in document.get("also", ())]
    fields["reason"] = Reason(document.get("reason_code", ""), document["reason"])
    fields["also"] = tuple(KnobMove(**move) for move in moves)
    lists = {name: tuple(document.get(name) or ()) for name in _LISTS}
    return Recommendation(**(fields | lists))


_FIELDS = tuple(Recommendation.__dataclass_fields__)
_MOVE = tuple(KnobMove.__dataclass_fields__)
_LISTS = ("price", "effect", "not_cured", "instead")


def plain(raw: Any) -> Any:
    """A value as JSON holds it: times as UTC text, no NaN, whole floats of counts stay floats."""
    if isinstance(raw, datetime):
        return utc_text(raw)
    if isinstance(raw, float):
        return float(raw) if math.isfinite(raw) else None  # NumPy's are floats, not JSON's
    if isinstance(raw, Mapping):
        return {str(key): plain(raw[key]) for key in raw}
    if isinstance(raw, list | tuple):
        return [plain(item) for item in raw]
    return raw if raw is None or isinstance(raw, bool | int | str) else str(raw)


def web_address(external_url: str | None, path: str) -> str | None:
    """Where people reach a page of the web; None where nobody said where that is."""
    address = http_url(external_url)
    return None if address is None else address.rstrip("/") + path


def http_url(text: str | None) -> str | None:
    """The address where it is a plain http(s) one, else None: no other scheme becomes a link."""
    if text is None or not text.isprintable() or any(ch in text for ch in " <>|\"'`"):
        return None
    return text if text.lower().startswith(("http://", "https://")) else None
