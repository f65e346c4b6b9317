"""What the report says of pools: lengths and caps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from driftwatch.notify.numbers import (
    count,
    figure,
    knob,
    percent,
    times,
    tokens,
)
from driftwatch.report.drift import compact, hours_text
from driftwatch.report.tables import UNKNOWN, Document, Section, or_unknown, table


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
