"""What stands below the top screen, as tables of texts: every form of the report draws these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from driftwatch.notify.numbers import clean, clock_seconds, duration, figure, moment
from driftwatch.report.drift import compact, hours_text, money_text
from driftwatch.report.outcomes import effect_name
from driftwatch.report.pool_sections import batch, caps, latency, lengths, month
from driftwatch.report.text import MOST_DECISIONS, many, tenths

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    """One heading with its table.

    Attributes:
        key: short and stable, for links.
        title: the heading.
        header: names of the columns; empty = no table.
        rows: cells.
        notes: sentences below it.
        numeric: columns that are numbers, from 0.
    """

    key: str
    title: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    numeric: frozenset[int] = frozenset()


def below(document: Document) -> list[Section]:
    """Every section that has something to say; none in a quiet week."""
    if document["quiet"]:
        return []
    makers: tuple[Callable[[Document], Iterator[Section]], ...] = (
        _decisions,
        _drift,
        _incidents,
        _pools,
        _advice,
        _blind,
        _held_back,
        _rules,
    )
    return [section for make in makers for section in make(document)]


def time_text(text: str | None) -> str:
    """A time of the document as people read it."""
    return "" if text is None else moment(datetime.fromisoformat(text), None)


def _decisions(document: Document) -> Iterator[Section]:
    decisions = document["for_you"]
    if len(decisions) > MOST_DECISIONS:
        rows = tuple((d["subject"], d["text"], time_text(d["since"])) for d in decisions)
        yield Section("decisions", "For you", ("subject", "what", "since"), rows)


def _drift(document: Document) -> Iterator[Section]:
    rows = []
    for row in document["drift"]:
        costs = row["cost"]
        low, high = (compact(costs[f"requests_over_target_{b}"]) for b in ("low", "high"))
        over = costs["requests_over_target_reason"] or (low if low == high else f"{low}–{high}")
        lost = costs["gpu_hours_lost"]
        hours = (
            hours_text(lost)
            if lost is not None
            else f"{hours_text(costs['server_hours_lost'])} server-h (GPU count unknown)"
            if costs["server_hours_lost"]
            else f"unknown: {costs['gpu_hours_lost_reason']}"
        )
        waited = costs["waited_hours"]
        rows.append(
            (
                f"{row['subject']} {row['figure']}",
                time_text(row["from"]),
                over,
                "unknown" if waited is None else hours_text(waited),
                hours,
                row["done"],
                row["result"],
                ", ".join(one[:8] for one in row["incidents"]),
            )
        )
    header = (
        "drift",
        "since",
        "requests over target",
        "requests' wait, h",
        "GPU-h lost",
        "done",
        "result",
        "incidents",
    )
    notes = [
        "Counted in cells of ten minutes that an incident touches. Requests over TTFT and TPOT "
        "targets are bounds: a target inside a bucket, or two targets, leave a range."
    ]
    if document["cost"]["targets_derived"]:
        notes.append("Targets are derived where none is configured: twice the pin's p95.")
    if (line := _cost_line(document["cost"])) is not None:
        notes.append(line)
    if rows:
        yield Section("drift", "Drift and its cost", header, tuple(rows), tuple(notes))


def _cost_line(costs: Document) -> str | None:
    """The whole week's cost in a sentence."""
    parts = []
    if costs["requests_over_target_reason"] is None:
        low, high = (compact(costs[f"requests_over_target_{b}"]) for b in ("low", "high"))
        parts.append(f"{low if low == high else f'{low}–{high}'} requests over target")
    if costs["gpu_hours_lost"] is not None:
        money = "" if costs["money"] is None else f" = {money_text(costs)}"
        parts.append(f"{hours_text(costs['gpu_hours_lost'])} GPU-hours lost{money}")
    elif costs["server_hours_lost"]:
        hours = hours_text(costs["server_hours_lost"])
        parts.append(f"{hours} server-hours lost ({costs['gpu_hours_lost_reason']})")
    else:
        parts.append(f"GPU-hours lost unknown ({costs['gpu_hours_lost_reason']})")
    return f"The whole week and fleet: {', '.join(parts)}." if parts else None


def _incidents(document: Document) -> Iterator[Section]:
    rows = []
    for one in document["incidents"]:
        ended = one["resolved_at"]
        lasted = "open"
        if ended is not None:
            began = datetime.fromisoformat(one["started_at"])
            seconds = clock_seconds(began, datetime.fromisoformat(ended))
            lasted = duration(seconds)
        silenced = " (silenced)" if one["silenced"] else ""
        rows.append(
            (
                one["severity"] + silenced,
                one["alert"],
                one["subject"],
                time_text(one["started_at"]),
                lasted,
                one["leaf"] or "not diagnosed",
                one["acknowledged_by"] or "nobody",
                _useful(one),
                one["id"][:8],
            )
        )
    header = ("severity", "alert", "target", "since", "lasted", "leaf", "acked by", "useful", "id")
    cleaned = tuple(tuple(clean(cell) for cell in row) for row in rows)
    note = "Was a page worth it? driftwatch mark ID --useful, or --not-useful --because TEXT"
    if rows:
        yield Section("incidents", "Incidents", header, cleaned, (note,))


def _useful(one: Document) -> str:
    """What somebody said of an incident's page, who and why."""
    if one["useful"] is None:
        return "not marked"
    why = f": {one['marked_because']}" if one["marked_because"] else ""
    return f"{'yes' if one['useful'] else 'no'} ({one['marked_by']}{why})"


def _pools(document: Document) -> Iterator[Section]:
    pools = document["pools"]
    for key, title, table in (
        ("lengths", "Lengths against the pin and tuned_for", lengths(pools)),
        ("batch", "Requests a forward pass", batch(pools)),
        ("month", "The last four weeks", month(document["month"])),
        ("latency", "Latency by batch", latency(pools)),
        ("caps", "Caps and KV cache", caps(pools)),
    ):
        header, rows, notes, numeric = table
        if rows:
            yield Section(key, title, header, rows, notes, numeric)


def _advice(document: Document) -> Iterator[Section]:
    record = document["advice"]
    rows = []
    for name, error in record["forecast_errors"].items():
        share = name.endswith("in_target_ratio")
        off, signed = (100 * error[n] for n in ("median_ratio", "median_signed_ratio"))
        unit = "points" if share else "%"
        rows.append(
            (
                "in target" if share else effect_name(name),
                f"{figure(off)} {unit}",
                f"{'+' if signed > 0 else ''}{figure(signed)} {unit}",
                str(error["n"]),
            )
        )
    notes = [
        f"{record['weeks']} weeks: "
        + ", ".join(f"{n} {name}" for name, n in record["verdicts"].items())
        + f", {record['open']} open; {many(record['changes_not_advised'], 'change')} that nobody "
        "had advised."
    ]
    header = ("forecast of", "off, median", "signed", "n")
    yield Section("advice", "Advice: the track record", header, tuple(rows), tuple(notes))


def _blind(document: Document) -> Iterator[Section]:
    blind = document["blind"]
    rows = tuple(
        (name, tenths(share), f"{share * blind['server_minutes'] / 60:,.1f}")
        for name, share in blind["by_reason"].items()
        if share
    )
    cannot = blind["cannot_show_doubled_lengths"]
    notes = [
        f"Of {many(blind['servers'], 'server')} {cannot['prompt_tokens']} cannot show prompts ×2 "
        f"and {cannot['generation_tokens']} cannot show generations ×2, or it is not known yet."
    ]
    if blind["longest_gap_hours"]:
        notes.append(f"Nobody watched for {hours_text(blind['longest_gap_hours'])} h at a stretch.")
    header = ("without verdict", "% of server-minutes", "server-hours")
    yield Section("blind", "Blind spots", header, rows, tuple(notes), frozenset({1, 2}))


def _held_back(document: Document) -> Iterator[Section]:
    suppressed = document["suppressed"]
    rows = [
        ("silenced", one["alert"], f"silence {one['silence']}") for one in suppressed["silenced"]
    ]
    rows += [
        ("silence", one["matchers"], f"by {one['by']}: {one['comment'] or 'no comment'}")
        for one in suppressed["silences"]
    ]
    rows += [("inhibited", one["alert"], f"by {one['by']}") for one in suppressed["inhibited_now"]]
    rows += [
        ("no answer", one["reason"], "once" if one["times"] == 1 else f"{one['times']} times")
        for one in suppressed["abstained"]
    ]
    cleaned = tuple(tuple(clean(str(cell)) for cell in row) for row in rows)
    if rows:
        yield Section("held", "Held back, and no answer", ("what", "which", "why"), cleaned)


def _rules(document: Document) -> Iterator[Section]:
    rules = document["rules"]
    text = f"{rules['enabled']} rules enabled, {rules['disabled']} off; sha256 {rules['sha256']}."
    yield Section("rules", "Rules", notes=(text,))
