"""Findings as the pipeline makes them, one per kind of page: tests/data/pages.yaml.

Rules, their forms and their trees are the shipped ones, and the tree is walked over the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import yaml
from made_incidents import incident_of

from driftwatch.diagnose.states import with_states
from driftwatch.diagnose.tree import walk
from driftwatch.evidence import COLUMNS, TEXTS
from driftwatch.incidents.incident import Incident
from driftwatch.model import (
    Advice,
    Diagnosis,
    Finding,
    KnobMove,
    Reason,
    Severity,
    Slo,
    Target,
    TargetKey,
)
from driftwatch.notify.page import Page
from driftwatch.pipeline.advice import own_advice
from driftwatch.pipeline.build_page import build_page
from driftwatch.rulebook.book import load_rulebook

BOOK = load_rulebook()
FORMS = {rule.alert: rule.page for rule in BOOK.rules}
TREES = {rule.alert: rule.tree for rule in BOOK.rules}
DAY = datetime(2026, 11, 18, tzinfo=UTC)
BEGAN, AT = DAY.replace(hour=2, minute=45), DAY.replace(hour=2, minute=56)
SLO = Slo(ttft_seconds=1.0, tpot_seconds=0.05, share=0.95)

_DTYPES: dict[str, Any] = {"float": pl.Float64, "bool": pl.Boolean, "string": pl.String}
_SIZES = tuple(f"allows_{n}" for n in ("max_num_batched_tokens", "max_num_seqs", "kv_cache"))
_SCHEMA: dict[str, Any] = {
    **{column.name: _DTYPES[column.dtype] for column in COLUMNS},
    **dict.fromkeys((*_SIZES, "duration_seconds", "kv_cache_tokens"), pl.Float64),
    **dict.fromkeys((*TEXTS, "gpu_count_source"), pl.String),
    "max_num_seqs_inferred": pl.Boolean,
}


@dataclass(frozen=True)
class Case:
    """A finding with what else a page is made of."""

    finding: Finding
    incident: Incident
    slo: Slo | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    external_url: str | None = None
    resolved_reason: str | None = None

    def page(self) -> Page:
        return build_page(
            self.finding,
            self.incident,
            "firing",
            AT,
            annotations=self.annotations,
            form=FORMS.get(self.incident.alert),
            external_url=self.external_url,
            slo=self.slo,
        )

    def resolved(self, after: timedelta = timedelta(minutes=71)) -> Page:
        end = BEGAN + after
        last = {"last_true_at": end - timedelta(minutes=5)}
        servers = tuple(one.model_copy(update=last) for one in self.incident.servers)
        over = {"resolved_at": end, "page": self.page(), "servers": servers}
        ended = self.incident.model_copy(update=over)
        return build_page(
            None,
            ended,
            "resolved",
            end,
            annotations=self.annotations,
            form=FORMS.get(self.incident.alert),
            external_url=self.external_url,
            resolved_reason=self.resolved_reason,
            ended_in_target=None if self.slo is None else True,
        )


def diagnosed(tree: str, evidence: Mapping[str, Any]) -> Diagnosis:
    """What the shipped tree says of an evidence row."""
    (diagnosis,) = walk(BOOK.trees[tree], pl.DataFrame([dict(evidence)], schema=_SCHEMA))
    return diagnosis


def case(
    alert: str,
    severity: Severity,
    evidence: Mapping[str, Any],
    *,
    labels: Mapping[str, str] | None = None,
    slo: Slo | None = None,
    annotations: Mapping[str, str] | None = None,
    external_url: str | None = None,
    pool: str | None = None,
    began: datetime = BEGAN,
    **rest: Any,
) -> Case:
    """A case from its parts; ``pool``: the incident is about that pool, both of its servers."""
    target = {"instance": "host:8000", "engine": "0"} | dict(labels or {})
    key = TargetKey(target.pop("instance"), target.pop("engine"))
    minute, in_pool = AT - timedelta(minutes=1), pool or target.pop("pool", "default")
    of_target = Target(key=key, labels=target, pool=in_pool)
    finding = Finding(alert, of_target, minute, evidence, since=began, **rest)
    both = (key,) if pool is None else (key, TargetKey("host-1:8000", "0"))
    finding = replace(finding, concerned=finding.concerned or both)
    keys = dict.fromkeys(finding.concerned)
    incident = incident_of(
        "3f9c1a7be204",
        rule=alert,
        pool=in_pool,
        servers=[f"{one.instance}/{one.engine}" for one in keys],
        at=AT,
        severity=severity,
        labels=target,
        started_at=began,
    )
    return Case(finding, incident, slo, annotations or {}, external_url)


def _merged(cases: Mapping[str, Any], name: str) -> dict[str, Any]:
    own = dict(cases[name])
    if "from" not in own:
        return own
    base = _merged(cases, own.pop("from"))
    both = {
        k: {**(base.get(k) or {}), **(own.get(k) or {})} for k in ("evidence", "reasons", "target")
    }
    return base | own | both


def _recommendation(written: Mapping[str, Any]) -> Advice:
    given = dict(written)
    reason = Reason(given.pop("code"), given.pop("reason"))
    lists = {
        name: tuple(given.pop(name, ()))
        for name in ("effect", "price", "not_cured", "instead", "later")
    }
    before, after = given.pop("from", None), given.pop("to", None)
    knob, provenance = given.pop("knob", None), given.pop("provenance", None)
    moves = () if knob is None else (KnobMove(knob, before, after, provenance),)
    return Advice(action=given.pop("action"), reason=reason, moves=moves, **lists, **given)


def _key(text: str) -> TargetKey:
    instance, _, engine = text.partition("/")
    return TargetKey(instance, engine or "0")


def _read(name: str, written: Mapping[str, Any], calm: Mapping[str, Any]) -> Case:
    numbers = {**dict.fromkeys(_SCHEMA), **calm, **written.get("evidence", {})}
    states = with_states(pl.DataFrame([numbers], schema=_SCHEMA)).row(0, named=True)
    evidence = {**numbers, **states}
    alert = written["alert"]
    tree = TREES.get(alert, written.get("tree"))
    diagnosis = None if tree is None else diagnosed(tree, evidence)
    advised = None
    if "recommendation" in written:
        advised = _recommendation(written["recommendation"])
    if diagnosis is not None and (advised is None or diagnosis.leaf == "undetermined"):
        advised = own_advice(BOOK.trees[tree].leaves.get(diagnosis.leaf), evidence)
    slo, hour = written.get("slo"), written.get("began", "02:45")
    hours, minutes = map(int, hour.split(":"))
    made = case(
        alert,
        written["severity"],
        {k: v for k, v in evidence.items() if k not in _SIZES},
        labels=written.get("target"),
        slo=None if slo is None else Slo(slo["ttft"], slo["tpot"], slo["share"]),
        annotations=written.get("annotations"),
        external_url=written.get("external_url"),
        pool=written.get("pool"),
        began=DAY.replace(hour=hours, minute=minutes),
        reasons=written.get("reasons") or {},
        reference=written.get("reference"),
        diagnosis=diagnosis,
        advice=advised,
        peers=written.get("peers"),
        concerned=tuple(map(_key, written.get("concerned", ()))),
        of_targets=written.get("of_targets"),
    )
    return replace(made, resolved_reason=written.get("resolved_reason"))


def _load() -> dict[str, Case]:
    path = Path(__file__).parents[0] / "data" / "pages.yaml"
    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    cases = written["cases"]
    return {name: _read(name, _merged(cases, name), written["calm"]) for name in cases}


CASES = _load()
BUDGET, CAP, DRIFT, KV, STUCK = (CASES[n] for n in ("budget", "cap", "drift", "kv", "stuck"))
UNDETERMINED, COVERAGE_UNLISTED = CASES["undetermined"], CASES["coverage_unlisted"]
GPU_LOST_NAMED = CASES["gpu_lost_named"]
