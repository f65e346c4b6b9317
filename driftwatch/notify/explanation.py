"""``explain`` as text and as JSON: one finding, nothing decided here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import Any

import orjson

from driftwatch.evidence import COLUMNS
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.model import Advice, Finding
from driftwatch.notify.advice import advice_lines, imperatives, no_verdict
from driftwatch.notify.attribution import (
    attribution,
    detectable_text,
    reason_of,
    speed_text,
    throughput_table,
)
from driftwatch.notify.columns import name_of
from driftwatch.notify.engine_words import engine_text, gpu_count_text, gpus_text
from driftwatch.notify.facts import amounts, baseline_of, plain, with_reasons
from driftwatch.notify.layout import fit, paint, wrap
from driftwatch.notify.page import Page, Servers, Times
from driftwatch.notify.path import render_limits, render_path
from driftwatch.notify.phrases.limits import MANY_GAVE_UP
from driftwatch.notify.shares import shares, shares_json, shares_table
from driftwatch.numbers import (
    change,
    clean,
    count,
    duration,
    figure,
    knob,
    setting,
    span,
    times,
    utc_text,
)

# kinds of drift that no setting mends
_NO_SETTING = ("speed", "stuck")


def todo(finding: Finding, pages: Sequence[Page] = (), where: str = "") -> list[str]:
    """What to do, first what open pages say, or why nothing; and the next command.

    ``pages``: of the target's own firing incidents; ``where``: options that name the same moment.
    """
    pages = _advising(finding, pages)
    out = [f"Do       {imperatives(page)[0]} ({clean(page.alert)})" for page in pages]
    advice = finding.advice
    # a page that forbids a change is not contradicted
    if any(page.family in _NO_SETTING for page in pages):
        advice = None
    missing = finding.diagnosis.missing if finding.diagnosis else ()
    repeats = pages and advice is not None and advice.action == "none" and advice.basis is None
    if advice is not None and not missing and not repeats:
        out += _own(finding, advice)
    if missing and not out:
        whys = [f"{name_of(n)}: {clean(finding.reasons.get(n) or 'unknown')}" for n in missing]
        out.append(f"Do       give what is missing: {'; '.join(dict.fromkeys(whys))}")
    if missing:
        out.append(f"next:    driftwatch doctor, driftwatch evidence {missing[0]}")
    elif advice is not None and (
        advice.basis in ("simulation", "measured") or advice.action == "insufficient"
    ):
        out.append(f"next:    driftwatch recommend {finding.target.key.text}{where}")
    else:
        slower = ("slower_at_equal_load", "slower_than_pool")
        about = "speed" if any(finding.evidence.get(name) for name in slower) else "queue"
        if finding.diagnosis is not None and finding.diagnosis.leaf == "drifted_within_limits":
            about = "length"
        out.append(f"next:    driftwatch evidence {about}")
    return out


def _own(finding: Finding, advice: Advice) -> Iterator[str]:
    """What the finding's own recommendation says, in the lines of a page."""
    diagnosis = finding.diagnosis
    if advice.reason.code == "leaf" and (diagnosis is None or diagnosis.advice is None):
        yield "Do       nothing to set"
        return
    at = finding.minute
    page = Page(
        event="firing",
        incident="",
        key="",
        rule=finding.rule,
        alert=finding.rule,
        severity="page",
        labels={},
        servers=Servers(concerned=1, of=1, first=(finding.target.key.text,)),
        times=Times(started_at=at, evaluated_at=at, measured_at=at),
        evidence=amounts(finding, [column.name for column in COLUMNS]),
        diagnosis=None if diagnosis is None else with_reasons(diagnosis, finding.reasons),
        advice=advice,
    )
    for line in advice_lines(page):
        yield f"{line.label:<8} {line.text}"
    if advice.not_cured:
        yield f"Also     {'; '.join(advice.not_cured)}"


def change_text(advice: Advice) -> str:
    """Every setting of a change: ``max_num_seqs 128 → 64, max_num_batched_tokens 8192 → 512``."""
    return ", ".join(
        setting(one.knob, one.from_value, one.to_value, one.from_provenance) for one in advice.moves
    )


def _advising(finding: Finding, pages: Sequence[Page]) -> list[Page]:
    """Pages that say what to do where the finding does not: it has no tree, or no verdict."""
    return [
        page
        for page in pages
        if (page.diagnosis is None or lacking(finding))
        and no_verdict(page) is None
        and imperatives(page)
    ]


def lacking(finding: Finding) -> list[str]:
    """Why there is no verdict, each reason once, without how to mend it; empty with a verdict."""
    missing = finding.diagnosis.missing if finding.diagnosis else ()
    texts = [f"{name_of(name)}: {reason_of(name, finding.reasons)}" for name in missing]
    return [*dict.fromkeys(texts)]


SCHEMA_VERSION = 2
_WIDTH = 80
_DATED = "%Y-%m-%d %H:%M:%S"


def explained_json(finding: Finding, start: datetime, end: datetime) -> str:
    """Everything ``explain`` knows; fields are only ever added.

    Every evidence column is there: ``value`` null beside its ``reason``.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "target": {
            "instance": finding.target.key.instance,
            "engine": finding.target.key.engine,
            "pool": finding.target.pool,
            **dict(sorted(finding.target.labels.items())),
        },
        "window": {"from": utc_text(start), "to": utc_text(end)},
        "evidence": {
            name: amount.document()
            for name, amount in amounts(finding, [column.name for column in COLUMNS]).items()
        },
        "baseline": None if (before := baseline_of(finding)) is None else before.document(),
        "moved": _moved(finding),
        "throughput": _throughput(finding),
        "shares": {
            stem: shares_json(distributions)
            for stem in _STEMS
            if (distributions := shares(finding.histograms, stem)) is not None
        },
        "diagnosis": None
        if finding.diagnosis is None
        else asdict(with_reasons(finding.diagnosis, finding.reasons)),
        "advice": None if finding.advice is None else finding.advice.document(),
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def render_explained(
    finding: Finding,
    start: datetime,
    end: datetime,
    *,
    pages: Sequence[Page] = (),
    today: date | None = None,
    colour: bool = False,
    where: str = "",
) -> str:
    """Which server, the answer and what to do; how it was decided; the tables; 80 columns.

    ``pages``: of the target's own firing incidents, whose advice comes first; ``today``: the day
    whose times are printed without a date, None = every time has one; ``where``: options of the
    next command, a blank before each: this moment and recording.
    """
    diagnosis, now, before = finding.diagnosis, finding.evidence, _before(finding)
    *things, following = todo(finding, pages, where)
    out = _lines((target_text(finding), window_text(finding, start, end, today)), "  ")
    out += ["", *_lines((verdict_text(finding),), "  "), *_lines(things, " " * 9), ""]
    if diagnosis is not None:
        out += [render_path(diagnosis, reference=before, evidence=now), ""]
    for stem in _STEMS:
        if (distributions := shares(finding.histograms, stem)) is not None:
            rows = shares_table(distributions, stem)
            out += [fit(line, _WIDTH) for line in rows]
    if before:
        rows = throughput_table(now, before, finding.reasons)
        out += [fit(line, _WIDTH) for line in rows]
    if diagnosis is not None:
        waiting = now.get("binding_waiting_requests")
        waiting = now.get("waiting_requests") if waiting is None else waiting
        preempted = now.get("preemptions_per_second")
        out.append(
            render_limits(
                diagnosis.limits,
                waiting=waiting,
                preempted=preempted,
                full_share=now.get("limit_binding_share_10m_ratio"),
            )
        )
    facts = (f"{label:<8} {text}" for label, text in fact_texts(finding, end) if text)
    out += ["", *_lines(facts, " " * 9), "", *_lines((following,), " " * 9)]
    return paint("\n".join(out).rstrip(), colour)


def _lines(texts: Iterable[str], indent: str) -> list[str]:
    return [line for text in texts for line in wrap(text, _WIDTH, indent)]


def fact_texts(finding: Finding, end: datetime) -> tuple[tuple[str, str], ...]:
    """What else was measured, or why not: a label and a text, which may be empty.

    ``end``: of the window.
    """
    now, reasons = finding.evidence, finding.reasons
    no_gpus = f"unknown: {reason_of('gpu_utilization_ratio', reasons)}"
    return (
        ("targets", finding.simulated_for or ""),
        ("engine", engine_text(now)),
        ("moved", _moved_text(finding)),
        ("speed", speed_text(now, reasons)),
        ("detects", detectable_text(now, reasons) if _is_as_before(finding) else ""),
        ("gpus", gpus_text(now, _before(finding)) or no_gpus),
    )


def target_text(finding: Finding) -> str:
    """Which server this is, as far as it says."""
    parts = []
    model = finding.target.labels.get("model_name")
    if model:
        parts.append(f"model {clean(model)}")
    if finding.target.pool and finding.target.pool != model:
        parts.append(f"pool {clean(finding.target.pool)}")
    parts.append(gpu_count_text(finding.evidence))
    kv = finding.evidence.get("kv_cache_tokens")
    parts.append("KV size unknown" if kv is None else f"KV {kv:,.0f} tokens")
    for name in COLUMN_KNOBS:
        value = finding.evidence.get(name)
        inferred = name == "max_num_seqs" and finding.evidence.get("max_num_seqs_inferred")
        parts.append(
            f"{name} unknown"
            if value is None
            else f"{name} {knob(value)}{' (inferred)' if inferred else ''}"
        )
    return f"{clean(finding.target.key.text)}: {', '.join(parts)}"


def window_text(finding: Finding, start: datetime, end: datetime, today: date | None) -> str:
    """The window, how much was scraped of it, and the baseline."""
    n = finding.evidence.get("finished_requests")
    counted = "finished requests unknown" if n is None else f"{count(n)} finished requests"
    if (finding.evidence.get("given_up_10m_low_ratio") or 0.0) >= MANY_GAVE_UP:
        gave_up = finding.evidence["given_up_requests_10m"]
        counted += f", about {count(gave_up)} gave up in 10 min"
    text = f"{_clock(start, end, today)}{_span_text(finding, start, end)}, {counted}"
    reference = finding.reference
    if reference is None and "provisional" in (finding.evidence.get("speed_reference") or ""):
        return f"{text}; no baseline: the speed is against driftwatch's own proposal"
    if reference is None:
        return f"{text}; no baseline"
    if reference["kind"] == "tuned_for":
        return f"{text}; compared with tuned_for"
    return f"{text}; baseline {_clock(reference['from'], reference['to'], today)}"


def verdict_text(finding: Finding) -> str:
    """The answer in one sentence."""
    diagnosis, why = finding.diagnosis, "; ".join(lacking(finding))
    if diagnosis is None or why:
        return f"Cause unknown: {why}" if why else "No rule of this server names a tree"
    if diagnosis.leaf == "healthy" and finding.evidence.get("slower_at_equal_load") is None:
        speed = clean(finding.reasons.get("slower_at_equal_load", "unknown").split(" (")[0])
        return f"healthy, but the speed is unknown ({speed})"
    return clean(diagnosis.meaning or diagnosis.leaf)


def _span_text(finding: Finding, start: datetime, end: datetime) -> str:
    """How much of the window scrapes cover, where that is not all of it."""
    whole, observed = (end - start).total_seconds(), finding.evidence.get("duration_seconds")
    if observed is None:
        return ", nothing scraped"
    if duration(observed) == duration(whole) or observed >= whole:
        return ""
    one, other = duration(observed), duration(whole)
    same_unit = one.split(" ")[1:] == other.split(" ")[1:]
    return f", {one.split(' ')[0] if same_unit else one} of {other} scraped"


def _clock(start: datetime, end: datetime, today: date | None) -> str:
    """A window, with seconds where it does not begin and end on a minute; its date unless today."""
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    whole = start.second == end.second == 0
    if start.date() != end.date():
        return span(start, end) if whole else f"{start:{_DATED}} – {end:{_DATED}} UTC"
    dated = "" if start.date() == today else f"{start:%Y-%m-%d} "
    return dated + (span(start, end) if whole else f"{start:%H:%M:%S}–{end:%H:%M:%S} UTC")


_STEMS = ("prompt_tokens", "generation_tokens")
_AS_BEFORE = ("healthy", "drifted_within_limits", "request_rate_drop")
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
    entries: dict[str, Any] = {}
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
        entries[name] = entry
    return entries


def _moved_text(finding: Finding) -> str:
    moved = _moved(finding)
    if moved is None:
        return ""
    parts = []
    for name, entry in moved.items():
        if entry["ratio"] is None:
            parts.append(f"{name} unknown ({entry['reason']})")
            continue
        lengths = entry["unit"] == "tokens"
        factor = times(entry["ratio"], 3) if lengths else change(entry["ratio"])
        parts.append(
            f"{name} {factor} ({figure(entry['from'])} → {figure(entry['to'])} {entry['unit']})"
        )
    return "; ".join(parts)


def _before(finding: Finding) -> Mapping[str, Any]:
    return finding.reference["values"] if finding.reference else {}


def _throughput(finding: Finding) -> dict[str, Any]:
    """The change of throughput and its factors; without them the reason."""
    comparison = attribution(finding.evidence, _before(finding), finding.reasons)
    if isinstance(comparison, str):
        return {"ratio": None, "reason": comparison}
    return {
        "unit": comparison.unit,
        "from": plain(comparison.before),
        "to": plain(comparison.now),
        "ratio": comparison.ratio,
        "factors": dict(comparison.factors),
        "unknown": dict(comparison.unknown),
    }


def _is_as_before(finding: Finding) -> bool:
    """Whether the walk reports no change: then the smallest one that would show is printed too."""
    return finding.diagnosis is not None and finding.diagnosis.leaf in _AS_BEFORE
