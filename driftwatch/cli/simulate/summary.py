"""How ``driftwatch simulate run`` says what happened: a table for people, one JSON object."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from driftwatch.cli.table import lines
from driftwatch.notify.numbers import figure, percent

if TYPE_CHECKING:
    from driftwatch.cli.simulate.options import EngineSetup
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
    "max_num_seqs": "the cap on running requests",
    "max_num_batched_tokens": "the token budget",
    "kv_cache": "KV blocks",
    "max_loras": "the cap on adapters",
    "other": "something else",
}


def as_lines(
    path: Path, workload: Workload, setup: EngineSetup, summary: RunSummary
) -> Iterator[str]:
    """Lines of at most 80 columns, the verdict last."""
    ended = [f"{count:,} {_ENDED[name]}" for name, count in summary.statuses.items() if count]
    yield f"{path.name} ({workload.source}): {', '.join(ended)}"
    rows, few = [], False
    for name, label in _NAMES.items():
        latency = summary.latency[name]
        if latency is None:
            rows.append([label, *("no request" for _ in _CELLS)])
        else:
            rows.append([label, *(_seconds(latency[cell]) for cell in _CELLS)])
            few = few or None in latency.values()
    if sys.stdout.isatty():
        yield from lines(["latency, s", *_CELLS], rows, rows)
    else:
        yield "\t".join(("latency", "unit", *_CELLS))
        yield from lines([], [], [[row[0], "s", *row[1:]] for row in rows])
    if few:
        yield f"unknown: {_FEW}"
    yield from _throughput(summary)
    yield _verdict(setup, summary)


def fitted(line: str, stream: TextIO) -> list[str]:
    """A line in 80 columns on a terminal; piped as it is."""
    if len(line) <= 80 or not stream.isatty():
        return [line]
    from driftwatch.notify.layout import wrap

    return list(wrap(line, 80, "  "))


def _throughput(summary: RunSummary) -> Iterator[str]:
    throughput = summary.throughput
    if throughput["requests_per_second"] is not None:
        rates = [
            f"{figure(throughput['generation_tokens_per_second'] or 0.0)} generated tokens/s",
            f"{figure(throughput['prompt_tokens_per_second'] or 0.0)} prompt tokens/s",
            f"{figure(throughput['requests_per_second'] or 0.0)} requests/s",
        ]
        yield f"{', '.join(rates)} over {figure(throughput['span_seconds'] or 0.0)} s"
    batch = summary.batch
    parts = [f"{int(batch['steps'] or 0):,} steps"]
    if batch["decode_seqs_per_step"] is not None:
        parts += [
            f"{figure(batch['decode_seqs_per_step'])} decoding requests a step",
            f"{figure(batch['tokens_per_step'] or 0.0)} tokens a step",
        ]
    if batch["busy_ratio"] is not None:
        parts.append(f"busy {percent(min(1.0, batch['busy_ratio']))}")
    yield ", ".join(parts)
    yield f"{summary.preemptions:,} preemptions"


def _verdict(setup: EngineSetup, summary: RunSummary) -> str:
    binds = sorted(
        ((share, limit) for limit, share in summary.waited.items() if share > 0), reverse=True
    )
    if not binds:
        return "nothing bound: no request waited after a step was filled"
    shares = [f"{_LIMITS[limit]} {percent(share)}" for share, limit in binds]
    return f"requests waited, of the time in steps, for: {', '.join(shares)}"


def _seconds(value: float | None) -> str:
    """Three digits, never an exponent where it is a time that somebody waited."""
    if value is None:
        return "unknown"
    return figure(value) if value >= 1e-9 else "0"  # less is the rounding of the clock


def as_json(path: Path, workload: Workload, setup: EngineSetup, summary: RunSummary) -> str:
    """One JSON object, base units in the names."""
    document: dict[str, Any] = {
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
        document["latency_reason"] = "no request finished"
    elif any(None in one.values() for one in summary.latency.values() if one is not None):
        document["latency_reason"] = f"null: {_FEW}"
    return orjson.dumps(_finite(document), option=orjson.OPT_INDENT_2).decode()


def _finite(value: Any) -> Any:
    """JSON has no infinity: null, as orjson writes it, but said here."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
