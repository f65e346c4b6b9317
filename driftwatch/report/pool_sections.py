"""What the report says of pools: lengths, batch, four weeks, latency by batch, caps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from driftwatch.notify.numbers import (
    count,
    figure,
    knob,
    milliseconds,
    percent,
    seconds,
    times,
    tokens,
)
from driftwatch.report.drift import compact, hours_text
from driftwatch.report.tables import UNKNOWN, Document, Section, or_unknown, table


def of_pools(document: Document) -> Iterator[Section]:
    """Every section about pools, in order."""
    for make in (_lengths, _batch, _month, _latency, _caps):
        yield from make(document)


def _lengths(document: Document) -> Iterator[Section]:
    """Lengths of the week against what each pool was tuned for; quantiles with their cell."""
    columns: Mapping[str, Callable[[Document], str]] = {
        "pool": lambda row: row["pool"],
        "tokens": lambda row: row["word"],
        "n": lambda row: or_unknown(row["n"], compact),
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
    yield from table("lengths", title, columns, rows, (note,), (2, 3, 6, 7))


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
        name: lambda row, name=name: or_unknown(row[name], figure)  # type: ignore[misc]
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
    yield from table("batch", title, columns, rows, (note,), range(1, 5))


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
        columns[header] = lambda row, name=name, write=write: or_unknown(row[name], write)  # type: ignore[misc]
        if need and any(row[name] is None for row in rows):
            blanks.append(f"{header} {need}")
    if blanks:
        notes.append(f"Unknown: {', '.join(blanks)}.")
    yield from table("month", "The last four weeks", columns, rows, tuple(notes), range(2, 11))


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
        "ITL mean": lambda band: or_unknown(band["itl_seconds_mean"], milliseconds),
        "TTFT mean": lambda band: or_unknown(band["ttft_seconds_mean"], seconds),
        "wait mean": lambda band: or_unknown(band["queue_seconds_mean"], seconds),
    }
    rows = [{**band, "pool": pool["pool"]} for pool in document["pools"] for band in pool["bands"]]
    yield from table("latency", "Latency by batch", columns, rows, numeric=range(2, 7))


def _caps(document: Document) -> Iterator[Section]:
    """How far the caps and the KV cache were used."""
    columns: Mapping[str, Callable[[Document], str]] = {
        "pool": lambda row: row["pool"],
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
    rows = [{"pool": pool["pool"], **pool["caps"]} for pool in document["pools"]]
    yield from table("caps", "Caps and KV cache", columns, rows, (note,), (2, 3, 6, 7))


def _sequence_caps(row: Document) -> str:
    """The caps of the week, and what it was changed to where the minutes do not show it."""
    caps, since = [knob(cap) for cap in row["max_num_seqs"]], row["max_num_seqs_since"]
    if not caps:
        return UNKNOWN
    inferred = " (inferred)" if row["max_num_seqs_inferred"] else ""
    then = "" if since is None or since.split(" ")[0] in caps else f", then {since}"
    return f"{', '.join(caps)}{inferred}{then}"
