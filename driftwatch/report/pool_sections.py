"""The tables of pools: lengths, batch, the month, latency by batch, caps. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from driftwatch.notify.numbers import (
    clean,
    count,
    figure,
    knob,
    milliseconds,
    percent,
    seconds,
    times,
)
from driftwatch.report.drift import compact, hours_text

Pools = Sequence[Mapping[str, Any]]
# header, rows, notes, columns that are numbers
Table = tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[str, ...], frozenset[int]]
UNKNOWN = "unknown"


def lengths(pools: Pools) -> Table:
    """Lengths of the week against what each pool was tuned for; quantiles with their cell."""
    rows = []
    for pool in pools:
        for stem, word in (("prompt_tokens", "prompt"), ("generation_tokens", "generation")):
            length = pool[stem]
            ratio, before = length["ratio"], length["reference_mean"]
            rows.append(
                (
                    clean(pool["pool"]),
                    word,
                    compact(length["n"]) if length["n"] is not None else UNKNOWN,
                    _tokens(length["mean"]) or length["reason"] or UNKNOWN,
                    _cell(length, "p50"),
                    _cell(length, "p95"),
                    _tokens(before) or "no reference",
                    "not compared" if ratio is None else times(ratio, 3),
                    clean(pool["tuned_for"] or "no pin, no tuned_for"),
                )
            )
    header = ("pool", "tokens", "n", "mean", "p50", "p95", "tuned for", "ratio", "by")
    notes = (
        "Quantiles lie in the cell of the histogram that is named, straight inside it; they are of "
        "whole days.",
    )
    return header, tuple(rows), notes, frozenset({2, 3, 6, 7})


def _tokens(mean: float | None) -> str | None:
    return None if mean is None else count(mean) if mean >= 100 else figure(mean)


def _cell(length: Mapping[str, Any], name: str) -> str:
    """``1.2k in (1k, 2k]``."""
    value = length[name]
    if value is None:
        return UNKNOWN
    low, high = length[f"{name}_lower"], length[f"{name}_upper"]
    upper = "∞" if high is None else _short(high)
    return f"{_short(value)} in ({_short(low or 0.0)}, {upper}]"


def _short(tokens: float) -> str:
    return f"{tokens:.3g}" if tokens < 1000 else f"{tokens / 1000:.3g}k"


def batch(pools: Pools) -> Table:
    """Quantiles of requests per forward pass beside the pin's mean."""
    rows = []
    for pool in pools:
        passes = pool["requests_per_forward_pass"]
        cells = [
            figure(passes[q]) if passes[q] is not None else UNKNOWN for q in ("p05", "p50", "p95")
        ]
        before = passes["reference_mean"]
        rows.append(
            (
                clean(pool["pool"]),
                *cells,
                "no pin" if before is None else figure(before),
                passes["reason"] or "",
            )
        )
    header = ("pool", "p05", "p50", "p95", "pin's mean", "")
    notes = ("Means of ten minutes, each weighing its forward passes.",)
    return header, tuple(rows), notes, frozenset({1, 2, 3, 4})


def month(pools: Pools) -> Table:
    """A row a pool and week; means weigh requests or minutes, quantiles are of a usual day."""
    rows = tuple(
        (
            clean(row["pool"]),
            row["week"],
            str(row["server_days"]),
            compact(row["finished_requests"]),
            _tokens(row["prompt_tokens_mean"]) or UNKNOWN,
            _tokens(row["generation_tokens_mean"]) or UNKNOWN,
            _figure(row["requests_per_forward_pass_p50"]),
            _figure(row["tokens_per_second_per_gpu"]),
            _figure(row["speed_at_equal_load_ratio"]),
            UNKNOWN if row["ttft_seconds_p95"] is None else seconds(row["ttft_seconds_p95"]),
            UNKNOWN if row["slo_missed_ratio"] is None else percent(row["slo_missed_ratio"]),
        )
        for row in pools
    )
    header = (
        "pool",
        "week",
        "server-days",
        "requests",
        "prompt tokens",
        "generation tokens",
        "requests a pass, p50",
        "tokens/s/GPU",
        "speed r",
        "TTFT p95",
        "minutes SLO missed",
    )
    notes = ["Days as they were; the first and the last week may be parts of a week."]
    blanks = [f"{header[at]} {why}" for at, why in _WHY if any(r[at] == UNKNOWN for r in rows)]
    if blanks:
        notes.append(f"Unknown: {', '.join(blanks)}.")
    return header, rows, tuple(notes), frozenset(range(2, 11))


# column → what it needs
_WHY = (
    (6, "without forward passes (vllm:iteration_tokens_total)"),
    (7, "where nobody counted the GPUs"),
    (8, "where no pin could be compared with"),
    (9, "without a request"),
    (10, "without an SLO"),
)


def _figure(value: float | None) -> str:
    return UNKNOWN if value is None else figure(value)


def latency(pools: Pools) -> Table:
    """Latency by batch: how much slower a token is in a larger batch."""
    rows = []
    for pool in pools:
        for band in pool["bands"]:
            rows.append(
                (
                    clean(pool["pool"]),
                    f"{knob(band['from_requests'])}–{knob(band['to_requests'])}, "
                    f"mean {figure(band['requests_mean'])}",
                    hours_text(band["hours"]),
                    compact(band["requests"]),
                    _or(band["itl_seconds_mean"], milliseconds),
                    _or(band["ttft_seconds_mean"], seconds),
                    _or(band["queue_seconds_mean"], seconds),
                )
            )
    header = (
        "pool",
        "requests a pass",
        "server-h",
        "requests",
        "ITL mean",
        "TTFT mean",
        "wait mean",
    )
    return header, tuple(rows), (), frozenset(range(2, 7))


def _or(value: float | None, write: Any) -> str:
    return UNKNOWN if value is None else str(write(value))


def _then(settings: Mapping[str, Any], now: str) -> str:
    """What the cap was changed to, where the minutes do not show it."""
    since = settings["max_num_seqs_since"]
    same = since is None or since.split(" ")[0] in now.split(", ")
    return "" if same else f", then {clean(since)}"


def caps(pools: Pools) -> Table:
    """How far the caps and the KV cache were used."""
    rows = []
    for pool in pools:
        limits = pool["caps"]
        inferred = " (inferred)" if limits["max_num_seqs_inferred"] else ""
        seqs = ", ".join(knob(cap) for cap in limits["max_num_seqs"])
        running, kv = limits["running_requests_peak"], limits["kv_cache_usage_peak_ratio"]
        never = limits["never_reached"]
        rows.append(
            (
                clean(pool["pool"]),
                f"{seqs}{inferred}{_then(limits, seqs)}" if seqs else UNKNOWN,
                UNKNOWN if running is None else count(running),
                hours_text(limits["queued_hours"]),
                limits["max_num_seqs_reason"] or ("never reached" if never else "reached"),
                ", ".join(knob(b) for b in limits["max_num_batched_tokens"]) or UNKNOWN,
                UNKNOWN if kv is None else percent(kv),
                _or(limits["preemptions"], count),
            )
        )
    header = (
        "pool",
        "max_num_seqs",
        "most running",
        "server-h queued",
        "the cap was",
        "max_num_batched_tokens",
        "KV peak",
        "preemptions",
    )
    notes = (
        "Most running and KV peak are means of ten minutes: the true peaks are higher. A cap "
        "counts as reached where 95 % of it ran, or requests waited for it in most scrapes of a "
        "minute.",
    )
    return header, tuple(rows), notes, frozenset({2, 3, 6, 7})
