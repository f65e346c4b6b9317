"""One minute of one target on one line, for ``watch`` and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from driftwatch.evidence import BY_NAME
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.notify.engine_words import gpu_count_text, gpus_text
from driftwatch.notify.layout import wrap
from driftwatch.notify.phrases.limits import LIMIT_WORDS
from driftwatch.numbers import (
    change,
    clean,
    count,
    duration,
    figure,
    knob,
    percent,
    seconds,
)

WIDTH = 80

_INDENT = " " * len("09:52 UTC  ")


def minute_line(row: Mapping[str, Any]) -> str:
    """``09:52 UTC  12.0 requests a step, 1,300 tokens/s, wait 0.01 s, KV 4 %, 0 waiting``.

    Unknown values print as unknown, never as 0. One scrape gives no rate, so a minute with only one
    prints "1 scrape". A line over 80 columns is wrapped, each number beside its unit.
    """
    clock = f"{row['end']:%H:%M} UTC"
    if not row["scrapes"]:
        return f"{clock}  no usable scrape"
    few = f", {count(row['scrapes'])} scrape" if row["scrapes"] < 2 else ""
    if row.get("engine_asleep"):
        return f"{clock}  asleep, {_waiting(row['waiting_requests'] or 0.0)} requests held{few}"
    pooling = row.get("engine_kind") == "pooling"
    tokens = row["prompt_tokens_total" if pooling else "generation_tokens_per_second"]
    if row["running_requests"] == 0 and tokens == 0:
        return f"{clock}  idle{few}"
    cells = ", ".join([*_cells(row), *([few.removeprefix(", ")] if few else [])])
    return "\n".join(wrap(f"{clock}  {cells}", WIDTH, _INDENT))


def _cells(row: Mapping[str, Any]) -> Iterator[str]:
    batch = "requests a step"
    bound = "≥" if row.get("forward_passes_overcounted") else ""

    def cell(column: str, name: str, say: Callable[[float], str]) -> str:
        value = row[column]
        return f"{name} unknown" if value is None else say(value)

    yield cell("requests_per_forward_pass", batch, lambda v: f"{bound}{figure(v)} {batch}")
    if row.get("engine_kind") == "pooling":
        unit = "prompt tokens/s (pooling)"
        tokens, time = row["prompt_tokens_total"], row["duration_seconds"]
        yield f"{unit} unknown" if tokens is None or not time else f"{figure(tokens / time)} {unit}"
    else:
        yield cell("generation_tokens_per_second", "tokens/s", lambda v: f"{figure(v)} tokens/s")
    total, count_ = row["queue_seconds_sum"], row["queue_seconds_count"]
    yield f"wait {_wait(total / count_)}" if total is not None and count_ else "wait unknown"
    yield cell("kv_cache_usage_ratio", "KV", lambda v: f"KV {percent(v)}")
    yield cell("waiting_requests", "waiting", lambda v: f"{_waiting(v)} waiting")
    if row["restarted"]:
        yield "restarted"


def _wait(value: float) -> str:
    return "<0.01 s" if 0 < value < 0.005 else seconds(value)


def _waiting(value: float) -> str:
    return "<0.1" if 0 < value < 0.1 else count(value)


def gpu_line(row: Mapping[str, Any]) -> str | None:
    """``2 GPUs (DCGM by pod): SM clock 1,980 MHz, GPU_UTIL 99 %, power 540 W``, the count if known;
    None without a reading.
    """
    gpus = gpus_text(row)
    if gpus is None:
        return None
    return gpus if row.get("gpu_count") is None else f"{gpu_count_text(row)}: {gpus}"


def limit_line(row: Mapping[str, Any]) -> str:
    """``none full: 0 waiting (both settings unknown)``, over the last ten minutes.

    At most 69 columns: with its label the line has 80.
    """
    unknown = [n for n in COLUMN_KNOBS if row.get(n) is None]
    named = "both settings" if len(unknown) == 2 else "".join(LIMIT_WORDS[n] for n in unknown)
    note = f" ({named} unknown)" if unknown else ""
    share = row["limit_binding_share_10m_ratio"]
    if share is None:
        return "unknown: /metrics has no vllm:num_requests_waiting"
    n = row.get("scrapes_10m")
    span = f"the last {duration(min(row['observed_10m_seconds'] or 0.0, 600.0))}"
    span = f"{percent(share)} of " + (span if n is None else f"{count(n)} scrapes")
    binding = row["binding_limit"]
    if binding == "none":
        waited = "0 waiting" if share == 0 else f"waiting in {span}"
        return f"none full: {waited}{note}"
    if binding is None:
        return f"one is full in {span}; unknown which{note}"
    inferred = " (inferred)" if row["max_num_seqs_inferred"] and binding == "max_num_seqs" else ""
    value = row.get(binding)
    setting = "" if value is None else f" {knob(value)}"
    return f"{clean(binding)}{setting}{inferred} full in {span}"


_UNBOUND = "; the smallest loss that would show is unknown"


def speed_line(row: Mapping[str, Any]) -> str:
    """``not judged yet: 15 of 20 minutes of data``, or the speed. ``row``: an evidence row."""
    ratio = row.get("speed_at_equal_load_ratio")
    if ratio is None or row.get("speed_unknown_reason"):
        reason = BY_NAME["speed_at_equal_load_ratio"].disabled_by
        return clean(row.get("speed_unknown_reason") or reason or "unknown")
    against = row.get("speed_reference") or "its baseline"
    if row.get("slower_at_equal_load"):
        return f"{percent(1.0 - ratio)} slower at equal load ({against})"
    least = row.get("speed_smallest_detectable_loss_ratio")
    bound = f"; a loss below {percent(least)} would not show" if least is not None else _UNBOUND
    return f"{change(ratio)} at equal load ({against}){bound}"
