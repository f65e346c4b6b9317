"""What stands below the top screen, as tables of texts: every form of the report draws these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from driftwatch.numbers import (
    clean,
    clock_seconds,
    count,
    duration,
    figure,
    knob,
    moment,
    percent,
    times,
    tokens,
)
from driftwatch.report.drift import compact, hours_text, lost_text, missed_text
from driftwatch.report.text import MOST_DECISIONS

Document = Mapping[str, Any]
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Section:
    """One heading with its table."""

    key: str  # short and stable, for links
    title: str
    header: tuple[str, ...] = ()  # empty = no table
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()  # sentences below it
    numeric: frozenset[int] = frozenset()  # columns that are numbers, from 0


def table(
    key: str,
    title: str,
    columns: Mapping[str, Callable[[Any], str]],
    rows: Iterable[Any],
    notes: tuple[str, ...] = (),
    numeric: Iterable[int] = (),
) -> Iterator[Section]:
    """A section of one table, by column: header and text of a row's cell; none without rows."""
    texts = tuple(tuple(clean(text(row)) for text in columns.values()) for row in rows)
    if texts:
        yield Section(key, title, tuple(columns), texts, notes, frozenset(numeric))


def or_unknown(value: float | None, write: Callable[[float], str]) -> str:
    """A number as text, or that it is unknown."""
    return UNKNOWN if value is None else write(value)


def time_text(text: str) -> str:
    """A time of the document as people read it."""
    return moment(datetime.fromisoformat(text), None)


def speed_text(ratio: float) -> str:
    """A speed at equal load, which may lie on either side of the baseline's.

    >>> speed_text(0.996), speed_text(1.012)
    ('100 %', '101 %')
    """
    return f"{100 * ratio:.0f} %"


def of_pools(document: Document) -> Iterator[Section]:
    """Every section about pools, in order."""
    for make in (_lengths, _caps):
        yield from make(document)


def _lengths(document: Document) -> Iterator[Section]:
    """Lengths of the week against what each pool was tuned for."""
    columns: Mapping[str, Callable[[Document], str]] = {
        "pool": lambda row: row["pool"],
        "tokens": lambda row: row["word"],
        "n": lambda row: or_unknown(row["n"], compact),
        "mean": lambda row: tokens(row["mean"]) if row["mean"] else row["reason"] or UNKNOWN,
        "tuned for": lambda row: tokens(r) if (r := row["reference_mean"]) else "no reference",
        "ratio": lambda row: "not compared" if row["ratio"] is None else times(row["ratio"], 3),
        "by": lambda row: row["tuned_for"] or "no baseline, no tuned_for",
    }
    rows = [
        {**pool, **pool[f"{word}_tokens"], "word": word}
        for pool in document["pools"]
        for word in ("prompt", "generation")
    ]
    title = "Lengths against the baseline and tuned_for"
    yield from table("lengths", title, columns, rows, numeric=(2, 3, 4, 5))


def _caps(document: Document) -> Iterator[Section]:
    """How far the caps and the KV cache were used."""
    columns: Mapping[str, Callable[[Document], str]] = {
        "pool": lambda row: row["pool"],
        "requests a pass": _batch,
        "max_num_seqs": _sequence_caps,
        "most running": lambda row: or_unknown(row["running_requests_peak"], count),
        "server-h queued": lambda row: hours_text(row["queued_hours"]),
        "the cap was": lambda row: (
            row["max_num_seqs_reason"] or ("never reached" if row["never_reached"] else "reached")
        ),
        "max_num_batched_tokens": lambda row: (
            ", ".join(map(knob, row["max_num_batched_tokens"])) or UNKNOWN
        ),
        "KV peak": lambda row: or_unknown(row["kv_cache_usage_peak_ratio"], percent),
        "preemptions": lambda row: or_unknown(row["preemptions"], count),
    }
    note = (
        "Most running and KV peak are means of ten minutes: the true peaks are higher. A cap "
        "counts as reached where 95 % of it ran, or requests waited for it in most scrapes of a "
        "minute."
    )
    rows = [
        {**pool["caps"], "pool": pool["pool"], "batch": pool["requests_per_forward_pass"]}
        for pool in document["pools"]
    ]
    yield from table("caps", "Batch, caps and KV cache", columns, rows, (note,), (3, 4, 7, 8))


def _batch(row: Document) -> str:
    """The week's mean and the baseline's: ``12.3, baseline 8.1``."""
    mean, before = row["batch"]["mean"], row["batch"]["reference_mean"]
    usual = "" if before is None else f", baseline {figure(before)}"
    return f"{or_unknown(mean, figure)}{usual}"


def _sequence_caps(row: Document) -> str:
    """The caps of the week, and what it was changed to where the minutes do not show it."""
    caps, since = [knob(cap) for cap in row["max_num_seqs"]], row["max_num_seqs_since"]
    if not caps:
        return UNKNOWN
    inferred = " (inferred)" if row["max_num_seqs_inferred"] else ""
    then = "" if since is None or since.split(" ")[0] in caps else f", then {since}"
    return f"{', '.join(caps)}{inferred}{then}"


def below(document: Document) -> list[Section]:
    """Every section that has something to say; none in a quiet week."""
    if document["quiet"]:
        return []
    makers = (_decisions, _week, _drift, _incidents, _notices, of_pools)
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
        "acknowledged by": lambda one: one["acknowledged_by"] or "nobody",
        "useful": _useful,
        "id": lambda one: one["id"][:8],
    }
    rows, placed = [], set()
    for cause in document["drift"]:
        for number, id_ in enumerate(cause["incidents"]):
            first = f"{cause['subject']}: {cause['figure']}" if number == 0 else "same"
            rows.append({**by_id[id_], "cause": first})
            placed.add(id_)
    others = [one for one in document["incidents"] if one["id"] not in placed]
    rows += [{**one, "cause": "no drift"} for one in others if one["severity"] != "notice"]
    note = "Was a page worth it? driftwatch ack ID --useful, or --not-useful --comment TEXT"
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
