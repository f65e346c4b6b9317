"""What stands below the top screen, as tables of texts: every form of the report draws these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from operator import itemgetter

from driftwatch.notify.numbers import (
    clean,
    clock_seconds,
    duration,
    figure,
)
from driftwatch.report.blindness import MOST_SERVERS
from driftwatch.report.drift import hours_text, lost_text, missed_text
from driftwatch.report.figures import week_rows
from driftwatch.report.outcomes import effect_name
from driftwatch.report.pool_sections import of_pools
from driftwatch.report.tables import (
    UNKNOWN,
    Document,
    Section,
    or_unknown,
    table,
    time_text,
)
from driftwatch.report.tallies import VERDICTS
from driftwatch.report.text import MOST_DECISIONS, REASON_WORDS, many, tenths


def below(document: Document) -> list[Section]:
    """Every section that has something to say; none in a quiet week."""
    if document["quiet"]:
        return []
    makers = (_decisions, _week, _drift, _incidents, _notices, of_pools)
    every = [section for make in makers for section in make(document)]
    return [*every, *_advice(document), *_blind(document), *_held_back(document), _rules(document)]


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


def _week(document: Document) -> Iterator[Section]:
    """The week of the drawn pools by day; the forms that can draw it do."""
    rows = [row for timeline in document.get("timelines", ()) for row in week_rows(timeline)]
    columns = {name: itemgetter(name) for name in (rows[0] if rows else ())}
    note = (
        "By half hours. Speed at equal load: of the pool's median and of its slowest server; 100 % "
        "is as the baseline. In target: requests within the target that most missed; a bucket that "
        "a target lies in counts as late. Usual in the baseline: nine of ten half hours of it."
    )
    yield from table("week", "The week", columns, rows, (note,), range(2, 7))


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


def _advice(document: Document) -> Iterator[Section]:
    record = document["advice"]
    rows = []
    for name, error in record["forecast_errors"].items():
        share = name.endswith("in_target_ratio")
        off, signed = (100 * error[n] for n in ("median_ratio", "median_signed_ratio"))
        unit, sign = "points" if share else "%", "+" if signed > 0 else ""
        word = "in target" if share else effect_name(name)
        texts = (f"{figure(off)} {unit}", f"{sign}{figure(signed)} {unit}", str(error["n"]))
        rows.append((word, *texts))
    verdicts = ", ".join(f"{record['verdicts'][name]} {name}" for name in VERDICTS)
    notes = (
        f"{record['weeks']} weeks: {verdicts}, {record['open']} open; "
        f"{many(record['changes_not_advised'], 'change')} that nobody had advised.",
    )
    header = ("forecast of", "median error", "median of measured minus forecast", "forecasts")
    yield Section("advice", "Advice: the track record", header, tuple(rows), notes)


def _blind(document: Document) -> Iterator[Section]:
    blind = document["blind"]
    rows = tuple(
        (
            REASON_WORDS.get(name, name),
            tenths(share),
            f"{share * blind['server_minutes'] / 60:,.1f}",
        )
        for name, share in blind["by_reason"].items()
        if share
    )
    notes = []
    if blind["longest_gap_hours"]:
        notes.append(f"Nobody watched for {hours_text(blind['longest_gap_hours'])} h at a stretch.")
    header = ("not judged", "% of server-minutes", "server-hours")
    if rows or notes:
        yield Section("blind", "Blind spots", header, rows, tuple(notes), frozenset({1, 2}))
    columns: Mapping[str, Callable[[Document], str]] = {
        "server": lambda row: row["server"],
        "pool": lambda row: row["pool"] or UNKNOWN,
        "not judged, %": lambda row: tenths(row["without_verdict_ratio"]),
        "mainly": lambda row: _reason(row["main_reason"]),
        "would be missed": _missed,
    }
    note = (
        "Servers not judged for 5 % of their minutes or more, or with too little data on lengths; "
        f"{MOST_SERVERS} at most."
    )
    servers = blind.get("by_server", ())
    yield from table("blind-servers", "Blind servers", columns, servers, (note,), (2,))


def _reason(name: str | None) -> str:
    return "never blind" if name is None else REASON_WORDS.get(name, name)


def _missed(row: Document) -> str:
    """What could happen to a blind server without a word from driftwatch."""
    hours = row["without_verdict_hours"]
    words = [f"a slower engine, for {hours_text(hours)} h"] if hours else []
    stems = {"prompt_tokens": "prompts ×2", "generation_tokens": "generations ×2"}
    words += [stems[stem] for stem in row["doubled_lengths_missed"]]
    return ", ".join(words)


def _held_back(document: Document) -> Iterator[Section]:
    suppressed = document["suppressed"]
    rows = [
        *(
            ("silenced", one["alert"], f"silence {one['silence']}")
            for one in suppressed["silenced"]
        ),
        *(
            ("silence", one["matchers"], f"by {one['by']}: {one['comment'] or 'no comment'}")
            for one in suppressed["silences"]
        ),
        *(("inhibited", one["alert"], f"by {one['by']}") for one in suppressed["inhibited_now"]),
        *(
            ("no answer", one["reason"], "once" if one["times"] == 1 else f"{one['times']} times")
            for one in suppressed["abstained"]
        ),
    ]
    texts = tuple(tuple(clean(str(cell)) for cell in row) for row in rows)
    if texts:
        yield Section("held", "Held back, and no answer", ("what", "which", "why"), texts)


def _rules(document: Document) -> Section:
    rules = document["rules"]
    text = f"{rules['enabled']} rules enabled, {rules['disabled']} off; sha256 {rules['sha256']}."
    return Section("rules", "Rules", notes=(text,))
