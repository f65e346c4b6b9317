"""A finding and its incident → the page as JSON: what every receiver is given. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from driftwatch.incidents.incident import Incident
from driftwatch.model import Finding, Recommendation, Slo, TargetKey
from driftwatch.notify.headline import headline
from driftwatch.notify.page import (
    NOTICE_ADVISES_NOTHING,
    SCHEMA_VERSION,
    diagnosis_json,
    evidence_json,
    http_url,
    next_time,
    plain,
    recommendation_json,
    web_address,
)
from driftwatch.notify.page_values import FORM, drifted_length
from driftwatch.notify.shares import shares, shares_json
from driftwatch.numbers import utc_text
from driftwatch.rulebook.page_form import PageForm

SILENCE_FOR = "2h"
# of a pool's incident so many targets are named, the others are counted
NAMED_TARGETS = 5


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
