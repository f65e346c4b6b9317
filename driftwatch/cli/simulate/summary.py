"""How ``driftwatch simulate run`` prints a run: a table for people, one JSON object."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwatch.cli.simulate.screen import number, rows_between_tabs, say, table
from driftwatch.notify.numbers import figure, percent

if TYPE_CHECKING:
    from driftwatch.cli.engine_options import EngineSetup
    from driftwatch.simulate.run_summary import RunSummary
    from driftwatch.simulate.workload import Workload

_NAMES = {
    "ttft_seconds": "TTFT",
    "itl_seconds": "ITL, a request's mean",
    "e2e_seconds": "end to end",
    "queue_seconds": "queue",
}
_CELLS = ("p50", "p90", "p99", "mean", "max")
_FEW = "too few requests for this quantile, p50 needs 2, p90 10, p99 100"
_ENDED = {
    "finished": "finished",
    "rejected": "rejected (503)",
    "cancelled": "cancelled",
    "timed_out": "timed out",
    "unfinished": "unfinished",
}
_LIMITS = {
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "the token budget",
    "kv_cache": "KV blocks",
    "max_loras": "the cap on adapters",
    "other": "something else",
}


def print_summary(path: Path, workload: Workload, summary: RunSummary) -> None:
    """A table and lines of at most 80 columns, the verdict last."""
    ended = [f"{count:,} {_ENDED[name]}" for name, count in summary.statuses.items() if count]
    total = sum(summary.statuses.values())
    say(f"{path.name} ({workload.source}), {total:,} requests: {', '.join(ended)}")
    rows, few = [], False
    for name, label in _NAMES.items():
        latency = summary.latency[name]
        if latency is None:
            rows.append([label, *("no request" for _ in _CELLS)])
        else:
            rows.append([label, *(_seconds(latency[cell]) for cell in _CELLS)])
            few = few or None in latency.values()
    if sys.stdout.isatty():
        table(["latency, s", *_CELLS], rows, gap=False)
    else:
        rows_between_tabs([("latency", "unit", *_CELLS), *([r[0], "s", *r[1:]] for r in rows)])
    if few:
        say(f"unknown: {_FEW}")
    _print_throughput(summary)
    waited = sorted(
        ((share, limit) for limit, share in summary.waited.items() if share > 0), reverse=True
    )
    if waited:
        shares = [f"{_LIMITS[limit]} {percent(share)}" for share, limit in waited]
        say(f"Share of the step time in which requests waited for a limit: {', '.join(shares)}")
    else:
        say("No limit held requests back: none waited after a step was filled.")


def _print_throughput(summary: RunSummary) -> None:
    throughput, batch = summary.throughput, summary.batch
    if throughput["requests_per_second"] is not None:
        say(
            f"{number(throughput['generation_tokens_per_second'])} generated tokens/s, "
            f"{number(throughput['prompt_tokens_per_second'])} prompt tokens/s, "
            f"{number(throughput['requests_per_second'])} requests/s over "
            f"{number(throughput['span_seconds'])} s"
        )
    parts = [f"{int(batch['steps'] or 0):,} steps"]
    if batch["decode_seqs_per_step"] is not None:
        parts += [
            f"{figure(batch['decode_seqs_per_step'])} decoding requests a step",
            f"{number(batch['tokens_per_step'])} tokens a step",
        ]
    if batch["busy_ratio"] is not None:
        parts.append(f"busy {percent(min(1.0, batch['busy_ratio']))} of the time")
    say(", ".join(parts))
    say(f"{summary.preemptions:,} preemptions")


def _seconds(value: float | None) -> str:
    """Three digits, never an exponent where it is a time that somebody waited."""
    if value is None:
        return "unknown"
    return figure(value) if value >= 1e-9 else "0"  # less is the rounding of the clock


def document(
    path: Path, workload: Workload, setup: EngineSetup, summary: RunSummary
) -> dict[str, Any]:
    """One JSON object, base units in the names."""
    answer: dict[str, Any] = {
        "schema_version": 1,
        "requests_file": str(path),
        "source": workload.source,
        "configuration": dataclasses.asdict(setup.configuration),
        "kv_cache_binds": setup.configuration.num_gpu_blocks is not None,
        "step_time": dataclasses.asdict(setup.step_time),
        "notes": [*setup.notes, *workload.notes],
        **summary.as_json(),
    }
    if not summary.statuses["finished"]:
        answer["latency_reason"] = "no request finished"
    elif any(None in one.values() for one in summary.latency.values() if one is not None):
        answer["latency_reason"] = f"null: {_FEW}"
    return answer
