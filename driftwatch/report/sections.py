"""What stands below the top screen, as tables of texts: every form of the report draws these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from driftwatch.notify.numbers import (
    clock_seconds,
    duration,
)
from driftwatch.report.drift import hours_text, lost_text, missed_text
from driftwatch.report.pool_sections import of_pools
from driftwatch.report.tables import (
    Document,
    Section,
    or_unknown,
    table,
    time_text,
)
from driftwatch.report.text import MOST_DECISIONS


def below(document: Document) -> list[Section]:
    """Every section that has something to say; none in a quiet week."""
    if document["quiet"]:
        return []
    makers = (_decisions, _week, _drift, _incidents, _notices, of_pools, _rules)
    return [section for make in makers for section in make(document)]


def _decisions(document: Document) -> Iterator[Section]:
    if len(document["for_you"]) > MOST_DECISIONS:
        columns: Mapping[str, Callable[[Document], str]] = {
            "subject": lambda d: d["subject"],
            "what": lambda d: d["text"],
            "since": lambda d: time_text(d["since"]),
        }
        yield from table("decisions", "For you", columns, document["for_you"])


def _drift(document: Document) -> Iterator[Section]:
    columns: Mapping[str, Callable[[Document], str]] = {
        "drift": lambda row: f"{row['subject']} {row['figure']}",
        "since": lambda row: time_text(row["from"]),
        "requests missed": lambda row: (
            row["cost"]["requests_over_target_reason"] or missed_text(row["cost"])
        ),
        "requests' wait, h": lambda row: or_unknown(row["cost"]["waited_hours"], hours_text),
        "lost": lambda row: lost_text(row["cost"]),
        "done": lambda row: row["done"],
        "result": lambda row: row["result"],
        "incidents": lambda row: ", ".join(one[:8] for one in row["incidents"]),
    }
    costs = document["cost"]
    notes = [
        "Counted in cells of ten minutes that an incident touches. Requests missed are those over "
        "their TTFT or TPOT target, and their share of all requests of the week in the pool; a "
        "target inside a bucket, or two targets, leave a range."
    ]
    if costs["targets_derived"]:
        notes.append("Where no target is configured, it is twice the baseline's p95.")
    over = costs["requests_over_target_reason"]
    over = (
        f"{missed_text(costs)} requests missed"
        if over is None
        else f"requests missed unknown ({over})"
    )
    notes.append(f"The whole week and fleet: {over}; GPU time: {lost_text(costs)}.")
    yield from table("drift", "Drift and its cost", columns, document["drift"], tuple(notes))


def _incidents(document: Document) -> Iterator[Section]:
    """Pages and tickets by cause; those of no cause after them, by alert."""
    by_id = {one["id"]: one for one in document["incidents"]}
    columns: Mapping[str, Callable[[Document], str]] = {
        "cause": lambda one: one["cause"],
        "severity": lambda one: one["severity"] + (" (silenced)" if one["silenced"] else ""),
        "alert": lambda one: one["alert"],
        "target": lambda one: one["subject"],
        "since": lambda one: time_text(one["started_at"]),
        "lasted": _lasted,
        "leaf": lambda one: one["leaf"] or "not diagnosed",
        "acked by": lambda one: one["acknowledged_by"] or "nobody",
        "useful": _useful,
        "id": lambda one: one["id"][:8],
    }
    rows, placed = [], set()
    for cause in document["drift"]:
        followed = set(cause.get("consequences", ()))
        for number, id_ in enumerate(cause["incidents"]):
            first = f"{cause['subject']}: {cause['figure']}" if number == 0 else "same"
            text = "its backlog" if id_ in followed else first
            rows.append({**by_id[id_], "cause": text})
            placed.add(id_)
    others = [one for one in document["incidents"] if one["id"] not in placed]
    rows += [{**one, "cause": "no drift"} for one in others if one["severity"] != "notice"]
    note = "Was a page worth it? driftwatch mark ID --useful, or --not-useful --because TEXT"
    yield from table("incidents", "Incidents by cause", columns, rows, (note,))


def _notices(document: Document) -> Iterator[Section]:
    columns: Mapping[str, Callable[[Document], str]] = {
        "notice": lambda row: row["alert"],
        "pool": lambda row: row["pool"],
        "times": lambda row: f"{row['notices']:,}",
        "servers": lambda row: "the pool" if row["servers"] is None else f"{row['servers']:,}",
        "first": lambda row: time_text(row["first"]),
        "last": lambda row: time_text(row["last"]),
    }
    rows = document.get("notices", ())
    yield from table("notices", "Notices", columns, rows, numeric=(2, 3))


def _lasted(incident: Document) -> str:
    if incident["resolved_at"] is None:
        return "open"
    began, ended = (datetime.fromisoformat(incident[f"{n}_at"]) for n in ("started", "resolved"))
    return duration(clock_seconds(began, ended))


def _useful(incident: Document) -> str:
    """What somebody said of an incident's page, who and why."""
    if incident["useful"] is None:
        return "not marked"
    why = f": {incident['marked_because']}" if incident["marked_because"] else ""
    return f"{'yes' if incident['useful'] else 'no'} ({incident['marked_by']}{why})"


def _week(document: Document) -> Iterator[Section]:
    """The week of the drawn pools: its plots."""
    if document["timelines"]:
        note = (
            "By half hours. Speed at equal load: of the pool's median and of its slowest server; "
            "100 % is as the baseline. In target: requests within the target that most missed; a "
            "bucket that a target lies in counts as late. Usual in the baseline: nine of ten half "
            "hours of it."
        )
        yield Section("week", "The week", notes=(note,))


def _rules(document: Document) -> Iterator[Section]:
    rules = document["rules"]
    text = f"{rules['enabled']} rules enabled, {rules['disabled']} off; sha256 {rules['sha256']}."
    yield Section("rules", "Rules", notes=(text,))
