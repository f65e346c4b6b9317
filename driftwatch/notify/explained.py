"""``explain`` as text and as JSON: one finding, nothing decided here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from driftwatch.evidence import BY_NAME, COLUMNS
from driftwatch.model import Finding
from driftwatch.notify.layout import paint, spell, wrap
from driftwatch.notify.numbers import change, clean, count, figure, knob, span, times, utc_text
from driftwatch.notify.page import diagnosis_json, plain, recommendation_json
from driftwatch.notify.terminal import render_limits, render_path

SCHEMA_VERSION = 1
_WIDTH = 80


def explained_json(finding: Finding, start: datetime, end: datetime) -> str:
    """Everything ``explain`` knows; fields are only ever added.

    Every evidence column is there: ``value`` null beside its ``reason``.
    """
    evidence = {}
    for column in COLUMNS:
        entry: dict[str, Any] = {
            "value": plain(finding.evidence.get(column.name)),
            "unit": column.unit,
        }
        if column.name in finding.reasons:
            entry["reason"] = finding.reasons[column.name]
        evidence[column.name] = entry
    document = {
        "schema_version": SCHEMA_VERSION,
        "target": {
            "instance": finding.target.key.instance,
            "engine": finding.target.key.engine,
            "pool": finding.target.pool,
            **dict(sorted(finding.target.labels.items())),
        },
        "window": {"from": utc_text(start), "to": utc_text(end)},
        "evidence": evidence,
        "reference": None if finding.reference is None else plain(finding.reference),
        "moved": _moved(finding),
        "attribution": _attribution(finding),
        "diagnosis": None
        if finding.diagnosis is None
        else diagnosis_json(finding.diagnosis, finding.reasons),
        "recommendation": None
        if finding.recommendation is None
        else recommendation_json(finding.recommendation),
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def render_explained(
    finding: Finding,
    start: datetime,
    end: datetime,
    *,
    colour: bool = False,
    ascii: bool = False,
) -> str:
    """Target, verdict, what moved, the path, the limits, and what to do; 80 columns."""
    diagnosis = finding.diagnosis
    out: list[str] = []
    for text in (_head(finding), _verdict(finding, start, end)):
        out += wrap(spell(text, ascii), _WIDTH, "  ")
    for label, told in (("moved", _moved_text(finding)), ("speed", _attribution_text(finding))):
        if told:
            out += wrap(spell(f"{label:<8} {told}", ascii), _WIDTH, " " * 9)
    out.append("")
    if diagnosis is not None:
        values = dict(finding.reference["values"]) if finding.reference else {}
        out += [
            render_path(diagnosis_json(diagnosis, finding.reasons), reference=values, ascii=ascii),
            "",
        ]
        waiting = finding.evidence.get("waiting_requests")
        out += [render_limits(diagnosis.limits, waiting=waiting, ascii=ascii), ""]
    out += [line for text in _todo(finding) for line in wrap(spell(text, ascii), _WIDTH, " " * 9)]
    return paint("\n".join(out).rstrip(), colour)


def _head(finding: Finding) -> str:
    """Which server this is, as far as it says."""
    parts = [f"engine {clean(finding.target.key.engine)}"]
    model = finding.target.labels.get("model_name")
    if model:
        parts.append(f"model {clean(model)}")
    if finding.target.pool and finding.target.pool != model:
        parts.append(f"pool {clean(finding.target.pool)}")
    kv = finding.evidence.get("kv_cache_tokens")
    parts.append("KV size unknown" if kv is None else f"KV {kv:,.0f} tokens")
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        value = finding.evidence.get(name)
        inferred = name == "max_num_seqs" and finding.evidence.get("max_num_seqs_inferred")
        parts.append(
            f"{name} unknown"
            if value is None
            else f"{name} {knob(value)}{' (inferred)' if inferred else ''}"
        )
    return f"{clean(finding.target.key.text)}: {', '.join(parts)}"


def _verdict(finding: Finding, start: datetime, end: datetime) -> str:
    """The leaf in words, the window and how much was seen in it."""
    diagnosis = finding.diagnosis
    leaf = "no verdict" if diagnosis is None else diagnosis.leaf
    n = finding.evidence.get("finished_requests")
    seen = "finished requests unknown" if n is None else f"n {count(n)}"
    said = f"{leaf}   now = {_clock(start, end)}, {seen}"
    reference = finding.reference
    if reference is None:
        return f"{said}; no reference"
    if reference["kind"] == "tuned_for":
        return f"{said}; reference: tuned_for"
    return f"{said}; reference: {_clock(reference['from'], reference['to'])}"


def _clock(start: datetime, end: datetime) -> str:
    """A window, with seconds where it does not begin and end on a minute."""
    if start.second == end.second == 0:
        return f"{start:%Y-%m-%d} {span(start, end)}"
    return f"{start:%Y-%m-%d %H:%M:%S}–{end:%H:%M:%S} UTC"


_MOVED = (
    ("prompt_tokens_mean", "prompts", "tokens"),
    ("generation_tokens_mean", "generations", "tokens"),
    ("requests_per_second", "requests", "requests/s"),
)


def _moved(finding: Finding) -> dict[str, Any] | None:
    """Each demand signal's factor against the reference; null beside a reason."""
    if finding.reference is None:
        return None
    before = finding.reference["values"]
    found: dict[str, Any] = {}
    for column, name, unit in _MOVED:
        ratio = finding.evidence.get(f"{column}_ratio")
        entry: dict[str, Any] = {
            "ratio": plain(ratio),
            "from": before.get(column),
            "to": plain(finding.evidence.get(column)),
            "unit": unit,
        }
        if ratio is None:
            entry["reason"] = finding.reasons.get(f"{column}_ratio", "not in the reference")
        found[name] = entry
    return found


def _moved_text(finding: Finding) -> str:
    moved = _moved(finding)
    if moved is None:
        return ""
    said = []
    for name, entry in moved.items():
        if entry["ratio"] is None:
            said.append(f"{name} unknown ({entry['reason']})")
            continue
        factor = times(entry["ratio"], 3)
        said.append(
            f"{name} {factor} ({figure(entry['from'])} → {figure(entry['to'])} {entry['unit']})"
        )
    return "; ".join(said)


def _attribution(finding: Finding) -> list[dict[str, Any]] | None:
    """tokens/s = batch / ITL × outputs per later token: factors that multiply to the whole.

    An identity of the counters (Little's law); None without a measured reference.
    """
    before: Mapping[str, Any] = finding.reference["values"] if finding.reference else {}
    now = finding.evidence
    wanted = ("generation_tokens_per_second", "effective_batch_size", "itl_seconds_mean")
    if any(not before.get(c) or not now.get(c) for c in wanted):
        return None
    whole, batch, itl = (now[c] / before[c] for c in wanted)
    return [
        {"factor": "batch", "ratio": batch},
        {"factor": "time per token", "ratio": 1 / itl},
        {"factor": "first tokens", "ratio": whole / (batch / itl)},
        {"factor": "tokens per second", "ratio": whole},
    ]


def _attribution_text(finding: Finding) -> str:
    factors = _attribution(finding)
    if factors is None:
        return ""
    by_name = {f["factor"]: f["ratio"] for f in factors}
    now = finding.evidence["generation_tokens_per_second"]
    before = finding.reference["values"]["generation_tokens_per_second"] if finding.reference else 0
    return (
        f"{figure(before)} → {figure(now)} tokens/s ({change(by_name['tokens per second'])}) = "
        f"batch {times(by_name['batch'], 3)} · tokens/s a request "
        f"{times(by_name['time per token'], 3)} · first tokens "
        f"{times(by_name['first tokens'], 3)}; moves with demand"
    )


def _todo(finding: Finding) -> Sequence[str]:
    """What to do, or why nothing; and the next command."""
    advice = finding.recommendation
    said = []
    if advice is not None and advice.action == "change":
        inferred = " (inferred)" if advice.from_provenance == "inferred" else ""
        said.append(
            f"do:      {advice.knob} {knob(advice.from_value or 0)}{inferred} → "
            f"{knob(advice.to_value or 0)}: {advice.reason}"
        )
        said.append(f"price:   {'; '.join(advice.price)}")
        said.append(f"undo:    {advice.undo}")
        said.append(f"wrong if {advice.wrong_if}")
    elif advice is not None:
        said.append(f"do:      nothing to set: {advice.reason}")
    missing = finding.diagnosis.missing if finding.diagnosis else ()
    for name in missing:
        why = finding.reasons.get(name) or BY_NAME[name].disabled_by or "not on the page"
        said.append(f"missing: {name}: {why}")
    said.append(
        f"next:    driftwatch doctor, driftwatch evidence {missing[0]}"
        if missing
        else "next:    driftwatch evidence TERM explains a column"
    )
    return said
