"""A finding and its incident → the page as JSON: what every receiver is given. Pure.

The schema is published (``docs/page.schema.json``) and versioned: fields are only added, units
stand in names or beside values, and a null value stands beside its reason.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Literal

from driftwatch.evidence import BY_NAME, COLUMNS
from driftwatch.model import (
    Diagnosis,
    Finding,
    Incident,
    KnobMove,
    Reason,
    Recommendation,
    Slo,
    TargetKey,
)
from driftwatch.notify.columns import page_columns
from driftwatch.notify.headline import headline
from driftwatch.notify.page_values import FORM, drifted_length
from driftwatch.notify.shares import shares, shares_json
from driftwatch.numbers import utc_text
from driftwatch.rulebook.page_form import PageForm

SCHEMA_VERSION = 2

SILENCE_FOR = "2h"
# of a pool's incident so many targets are named, the others are counted
NAMED_TARGETS = 5

# a notice tells and asks for nothing, whatever the diagnosis would advise
NOTICE_ADVISES_NOTHING = Reason("notice", "a notice asks for nothing to be done")

# the grid of the clock on which an answer that time may bring is asked for again
EVERY = timedelta(minutes=10)

_NO_INPUT = "not in the scrapes of the window"
_INSIDE_BUCKET = "a lower bound: the target lies inside a bucket, see upper"
_NOT_FINITE = "not a finite number"


def build_page(
    finding: Finding | None,
    incident: Incident,
    event: Literal["firing", "resolved"],
    at: datetime,
    *,
    annotations: Mapping[str, str] | None = None,
    form: PageForm | None = None,
    external_url: str | None = None,
    slo: Slo | None = None,
    resolved_reason: str | None = None,
    ended_in_target: bool | None = None,
) -> dict[str, Any]:
    """The page of an incident that fired or resolved, valid against ``docs/page.schema.json``.

    ``finding``: what the rule found, None (a resolve) = evidence, diagnosis, recommendation and
    reference as last sent; ``at``: end of the minute that decided it; ``form``: how the rule wants
    its page, None = as before; ``slo``: None = the targets of the evidence row;
    ``resolved_reason``: why it resolved without a good minute; ``ended_in_target``: whether the
    targets were kept when it resolved, None = unknown.
    """
    last = incident.page or {}
    page: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "event": event,
        "test": False,
        "summary": "",
        "times": {
            "started_at": utc_text(incident.started_at),
            "firing_at": _time(incident.firing_at),
            "resolved_at": _time(incident.resolved_at),
            "evaluated_at": utc_text(at),
        },
        "incident": {"id": incident.id, "key": incident.key},
        "rule": incident.rule,
        "alert": incident.alert,
        "severity": incident.severity,
        "target": dict(sorted(incident.target.items())),
        FORM: dict(last.get(FORM) or {}) if form is None else _form(form),
        **(_content_as_sent(last) if finding is None else _content(finding, incident, slo, form)),
        "annotations": dict(sorted((annotations or {}).items())),
    }
    if finding is not None:
        page |= _shares(finding, page)
    if finding is not None and finding.answered_by is not None:
        page["answered_by"] = dict(zip(("incident", "alert"), finding.answered_by, strict=True))
    if finding is not None and finding.asked_again:
        page["asked_again_at"] = utc_text(next_time(at))
    if resolved_reason is not None:
        page["resolved_reason"] = resolved_reason
    if ended_in_target is not None:
        page["ended_in_target"] = ended_in_target
    page["links"] = _links(incident, page, at, annotations or {}, external_url)
    page["summary"] = headline(page)
    return page


def next_time(at: datetime) -> datetime:
    """The minute of the grid after a time.

    >>> [next_time(datetime(2026, 3, 1, 12, minute)).minute for minute in (3, 20)]
    [10, 30]
    """
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + ((at - midnight) // EVERY + 1) * EVERY


def _content_as_sent(last: Mapping[str, Any]) -> dict[str, Any]:
    """What was found, as the page before had it."""
    content = {name: last.get(name) for name in _ALWAYS}
    kept = {name: last[name] for name in _SOMETIMES if last.get(name) is not None}
    return {"evidence": dict(last.get("evidence") or {}), **content, **kept}


_ALWAYS = ("slo", "diagnosis", "recommendation", "reference")
_SOMETIMES = ("concerned", "peers", "shares", "verification")


def _concerned(finding: Finding) -> dict[str, Any]:
    """Of a pool's incident: how many of how many targets it is about, and the first of them."""
    if finding.of_targets is None:
        return {}
    alike, others = finding.configured_alike
    groups = {"configured_alike": alike, "configured_otherwise": others} if others else {}
    return {
        "concerned": {
            **_counted(finding.concerned),
            "of_targets": finding.of_targets,
            **{name: _counted(keys) for name, keys in groups.items()},
        }
    }


def _counted(keys: Sequence[TargetKey]) -> dict[str, Any]:
    return {"targets": len(keys), "first": [key.text for key in keys[:NAMED_TARGETS]]}


def _form(form: PageForm) -> dict[str, Any]:
    """What of the form is not as usual."""
    usual = PageForm().model_dump()
    return {k: plain(v) for k, v in form.model_dump().items() if v != usual[k] and k != "columns"}


def _shares(finding: Finding, page: Mapping[str, Any]) -> dict[str, Any]:
    """Both distributions of the length that drifted, where somebody counted both."""
    stem = drifted_length(page)
    both = None if stem is None else shares(finding.histograms, stem)
    return {} if both is None or stem is None else {"shares": {stem: shares_json(both)}}


def _content(
    finding: Finding, incident: Incident, slo: Slo | None, form: PageForm | None
) -> dict[str, Any]:
    """What was found; of a pool's incident where, and how its other targets do if that is known."""
    diagnosis, peers = finding.diagnosis, plain(finding.peers)
    return {
        **_concerned(finding),
        **({} if peers is None else {"peers": peers}),
        "evidence": evidence_json(finding, (form or PageForm()).columns),
        "slo": _slo(slo, finding.evidence),
        "diagnosis": None if diagnosis is None else diagnosis_json(diagnosis, finding.reasons),
        "recommendation": _advised(finding.recommendation, incident),
        "reference": None if finding.reference is None else plain(finding.reference),
    }


def _advised(advice: Recommendation | None, incident: Incident) -> dict[str, Any] | None:
    if advice is not None and incident.severity == "notice":
        advice = Recommendation("none", NOTICE_ADVISES_NOTHING)
    return None if advice is None else recommendation_json(advice)


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


def _slo(slo: Slo | None, evidence: Mapping[str, Any]) -> dict[str, Any] | None:
    """The targets as given, or as the evidence row carries them; None without any."""
    if slo is None:
        share = evidence.get("slo_share")
        slo = Slo(
            evidence.get("slo_ttft_seconds"),
            evidence.get("slo_tpot_seconds"),
            Slo().share if share is None else share,
        )
    if slo.ttft_seconds is None and slo.tpot_seconds is None:
        return None
    return {
        "ttft_seconds": slo.ttft_seconds,
        "tpot_seconds": slo.tpot_seconds,
        "share": slo.share,
    }


def _time(at: datetime | None) -> str | None:
    return None if at is None else utc_text(at)


def _links(
    incident: Incident,
    page: Mapping[str, Any],
    at: datetime,
    annotations: Mapping[str, str],
    external_url: str | None,
) -> dict[str, str | None]:
    """Addresses where they exist, and the commands that do the rest, quoted for a shell."""
    instance, engine = incident.target.get("instance"), incident.target.get("engine", "0")
    target = instance if engine == "0" else f"{instance}/{engine}"
    if not instance and (concerned := page.get("concerned")):
        target = concerned["first"][0]
    minute = utc_text(at.replace(microsecond=0)).replace(":00Z", "Z")
    names = ("instance", "engine") if instance else ("pool",)
    matchers = [f"alert={incident.alert}"]
    matchers += [
        f"{name}={label}"
        for name in names
        if (label := incident.target.get(name)) and (name, label) != ("engine", "0")
    ]
    return {
        "runbook": http_url(annotations.get("runbook_url")),
        "driftwatch": web_address(external_url, f"/incidents/{incident.id}"),
        "explain": None
        if not target
        else shlex.join(["driftwatch", "explain", str(target), "--at", minute]),
        "ack": shlex.join(["driftwatch", "ack", incident.id]),
        "silence": shlex.join(["driftwatch", "silence", *matchers, "--for", SILENCE_FOR]),
    }


def web_address(external_url: str | None, path: str) -> str | None:
    """Where people reach a page of the web; None where nobody said where that is."""
    address = http_url(external_url)
    return None if address is None else address.rstrip("/") + path


def http_url(text: str | None) -> str | None:
    """The address where it is a plain http(s) one, else None: no other scheme becomes a link."""
    if text is None or not text.isprintable() or any(ch in text for ch in " <>|\"'`"):
        return None
    return text if text.lower().startswith(("http://", "https://")) else None
