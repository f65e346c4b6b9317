"""What stands below the top screen, as tables of texts: every form of the report draws these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from driftwatch.notify.numbers import (
    clean,
    clock_seconds,
    count,
    duration,
    figure,
    knob,
    milliseconds,
    moment,
    percent,
    seconds,
    times,
    tokens,
)
from driftwatch.report.drift import compact, hours_text, lost_text, over_text
from driftwatch.report.outcomes import effect_name
from driftwatch.report.text import MOST_DECISIONS, REASON_WORDS, many, tenths

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


def below(document: Document) -> list[Section]:
    """Every section that has something to say; none in a quiet week."""
    if document["quiet"]:
        return []
    makers = (_decisions, _drift, _incidents, _lengths, _batch, _month, _latency, _caps)
    every = [section for make in makers for section in make(document)]
    return [*every, *_advice(document), *_blind(document), *_held_back(document), _rules(document)]


def _table(
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


def _or(value: float | None, write: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else write(value)


def time_text(text: str) -> str:
    """A time of the document as people read it."""
    return moment(datetime.fromisoformat(text), None)


def _decisions(document: Document) -> Iterator[Section]:
    if len(document["for_you"]) > MOST_DECISIONS:
        columns: Mapping[str, Callable[[Document], str]] = {
            "subject": lambda d: d["subject"],
            "what": lambda d: d["text"],
            "since": lambda d: time_text(d["since"]),
        }
        yield from _table("decisions", "For you", columns, document["for_you"])


def _drift(document: Document) -> Iterator[Section]:
    columns: Mapping[str, Callable[[Document], str]] = {
        "drift": lambda row: f"{row['subject']} {row['figure']}",
        "since": lambda row: time_text(row["from"]),
        "requests over target": lambda row: (
            row["cost"]["requests_over_target_reason"] or over_text(row["cost"])
        ),
        "requests' wait, h": lambda row: _or(row["cost"]["waited_hours"], hours_text),
        "lost": lambda row: lost_text(row["cost"]),
        "done": lambda row: row["done"],
        "result": lambda row: row["result"],
        "incidents": lambda row: ", ".join(one[:8] for one in row["incidents"]),
    }
    costs = document["cost"]
    notes = [
        "Counted in cells of ten minutes that an incident touches. Requests over TTFT and TPOT "
        "targets are bounds: a target inside a bucket, or two targets, leave a range."
    ]
    if costs["targets_derived"]:
        notes.append("Where no target is configured, it is twice the baseline's p95.")
    over = costs["requests_over_target_reason"]
    over = (
        f"{over_text(costs)} requests over target"
        if over is None
        else f"requests over target unknown ({over})"
    )
    notes.append(f"The whole week and fleet: {over}; GPU time: {lost_text(costs)}.")
    yield from _table("drift", "Drift and its cost", columns, document["drift"], tuple(notes))


def _incidents(document: Document) -> Iterator[Section]:
    columns: Mapping[str, Callable[[Document], str]] = {
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
    note = "Was a page worth it? driftwatch mark ID --useful, or --not-useful --because TEXT"
    yield from _table("incidents", "Incidents", columns, document["incidents"], (note,))


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


def _lengths(document: Document) -> Iterator[Section]:
    """Lengths of the week against what each pool was tuned for; quantiles with their cell."""
    columns: Mapping[str, Callable[[Document], str]] = {
        "pool": lambda row: row["pool"],
        "tokens": lambda row: row["word"],
        "n": lambda row: _or(row["n"], compact),
        "mean": lambda row: tokens(row["mean"]) if row["mean"] else row["reason"] or UNKNOWN,
        "p50": lambda row: _quantile(row, "p50"),
        "p95": lambda row: _quantile(row, "p95"),
        "tuned for": lambda row: tokens(r) if (r := row["reference_mean"]) else "no reference",
        "ratio": lambda row: "not compared" if row["ratio"] is None else times(row["ratio"], 3),
        "by": lambda row: row["tuned_for"] or "no baseline, no tuned_for",
    }
    rows = [
        {**pool, **pool[f"{word}_tokens"], "word": word}
        for pool in document["pools"]
        for word in ("prompt", "generation")
    ]
    note = (
        "Quantiles lie in the named cell of the histogram, interpolated inside it; they are of "
        "whole days."
    )
    title = "Lengths against the baseline and tuned_for"
    yield from _table("lengths", title, columns, rows, (note,), (2, 3, 6, 7))


def _quantile(length: Document, name: str) -> str:
    """``1.2k in (1k, 2k]``."""
    if length[name] is None:
        return UNKNOWN
    low, high = length[f"{name}_lower"], length[f"{name}_upper"]
    return f"{_short(length[name])} in ({_short(low or 0.0)}, {_short(high)}]"


def _short(mean: float | None) -> str:
    if mean is None:
        return "∞"
    return f"{mean:.3g}" if mean < 1000 else f"{mean / 1000:.3g}k"


def _batch(document: Document) -> Iterator[Section]:
    columns: dict[str, Callable[[Document], str]] = {"pool": lambda row: row["pool"]}
    columns |= {
        name: lambda row, name=name: _or(row[name], figure)  # type: ignore[misc]
        for name in ("p05", "p50", "p95")
    }
    columns |= {
        "baseline's mean": lambda row: (
            "no baseline" if row["reference_mean"] is None else figure(row["reference_mean"])
        ),
        "": lambda row: row["reason"] or "",
    }
    rows = [{**pool, **pool["requests_per_forward_pass"]} for pool in document["pools"]]
    note = "Means of ten minutes, each weighing its forward passes."
    title = "Requests a forward pass"
    yield from _table("batch", title, columns, rows, (note,), range(1, 5))


# header of the month's table → its column, how it is written, and what the column needs
_MONTH: tuple[tuple[str, str, Callable[[float], str], str], ...] = (
    ("prompt tokens", "prompt_tokens_mean", tokens, ""),
    ("generation tokens", "generation_tokens_mean", tokens, ""),
    (
        "requests a step, p50",
        "requests_per_forward_pass_p50",
        figure,
        "without forward passes (vllm:iteration_tokens_total)",
    ),
    ("tokens/s/GPU", "tokens_per_second_per_gpu", figure, "where nobody counted the GPUs"),
    ("speed at equal load", "speed_at_equal_load_ratio", figure, "without a baseline"),
    ("TTFT p95", "ttft_seconds_p95", seconds, "without a request"),
    ("minutes target missed", "slo_missed_ratio", percent, "without a target"),
)


def _month(document: Document) -> Iterator[Section]:
    """A row a pool and week; means weigh requests or minutes, quantiles are of a usual day."""
    rows = document["month"]
    columns: dict[str, Callable[[Document], str]] = {
        "pool": lambda row: row["pool"],
        "week": lambda row: row["week"],
        "server-days": lambda row: str(row["server_days"]),
        "requests": lambda row: compact(row["finished_requests"]),
    }
    notes, blanks = ["Days as they were; the first and the last week may be parts of a week."], []
    for header, name, write, need in _MONTH:
        columns[header] = lambda row, name=name, write=write: _or(row[name], write)  # type: ignore[misc]
        if need and any(row[name] is None for row in rows):
            blanks.append(f"{header} {need}")
    if blanks:
        notes.append(f"Unknown: {', '.join(blanks)}.")
    yield from _table("month", "The last four weeks", columns, rows, tuple(notes), range(2, 11))


def _latency(document: Document) -> Iterator[Section]:
    """Latency by batch: how much slower a token is in a larger batch."""
    columns: Mapping[str, Callable[[Document], str]] = {
        "pool": lambda band: band["pool"],
        "requests a step": lambda band: (
            f"{knob(band['from_requests'])}–{knob(band['to_requests'])}, "
            f"mean {figure(band['requests_mean'])}"
        ),
        "server-h": lambda band: hours_text(band["hours"]),
        "requests": lambda band: compact(band["requests"]),
        "ITL mean": lambda band: _or(band["itl_seconds_mean"], milliseconds),
        "TTFT mean": lambda band: _or(band["ttft_seconds_mean"], seconds),
        "wait mean": lambda band: _or(band["queue_seconds_mean"], seconds),
    }
    rows = [{**band, "pool": pool["pool"]} for pool in document["pools"] for band in pool["bands"]]
    yield from _table("latency", "Latency by batch", columns, rows, numeric=range(2, 7))


def _caps(document: Document) -> Iterator[Section]:
    """How far the caps and the KV cache were used."""
    columns: Mapping[str, Callable[[Document], str]] = {
        "pool": lambda row: row["pool"],
        "max_num_seqs": _sequence_caps,
        "most running": lambda row: _or(row["running_requests_peak"], count),
        "server-h queued": lambda row: hours_text(row["queued_hours"]),
        "the cap was": lambda row: (
            row["max_num_seqs_reason"] or ("never reached" if row["never_reached"] else "reached")
        ),
        "max_num_batched_tokens": lambda row: (
            ", ".join(map(knob, row["max_num_batched_tokens"])) or UNKNOWN
        ),
        "KV peak": lambda row: _or(row["kv_cache_usage_peak_ratio"], percent),
        "preemptions": lambda row: _or(row["preemptions"], count),
    }
    note = (
        "Most running and KV peak are means of ten minutes: the true peaks are higher. A cap "
        "counts as reached where 95 % of it ran, or requests waited for it in most scrapes of a "
        "minute."
    )
    rows = [{"pool": pool["pool"], **pool["caps"]} for pool in document["pools"]]
    yield from _table("caps", "Caps and KV cache", columns, rows, (note,), (2, 3, 6, 7))


def _sequence_caps(row: Document) -> str:
    """The caps of the week, and what it was changed to where the minutes do not show it."""
    caps, since = [knob(cap) for cap in row["max_num_seqs"]], row["max_num_seqs_since"]
    if not caps:
        return UNKNOWN
    inferred = " (inferred)" if row["max_num_seqs_inferred"] else ""
    then = "" if since is None or since.split(" ")[0] in caps else f", then {since}"
    return f"{', '.join(caps)}{inferred}{then}"


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
    verdicts = ", ".join(f"{n} {name}" for name, n in record["verdicts"].items())
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
    cannot = blind["cannot_show_doubled_lengths"]
    notes = [
        f"Of {many(blind['servers'], 'server')} {cannot['prompt_tokens']} cannot show prompts ×2 "
        f"and {cannot['generation_tokens']} cannot show generations ×2, or it is not known yet."
    ]
    if blind["longest_gap_hours"]:
        notes.append(f"Nobody watched for {hours_text(blind['longest_gap_hours'])} h at a stretch.")
    header = ("not judged", "% of server-minutes", "server-hours")
    yield Section("blind", "Blind spots", header, rows, tuple(notes), frozenset({1, 2}))


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
