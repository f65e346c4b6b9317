"""One minute of one target on one line, for people who watch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftwatch.notify.numbers import clean, count, duration, figure, percent, seconds


def minute_line(row: Mapping[str, Any]) -> str:
    """``09:52 UTC  12.0 requests a pass, 1,300 tokens/s, wait 0.01 s, KV 4 %, 0 waiting``.

    Unknown values are said, never 0.
    """
    clock = f"{row['end']:%H:%M} UTC"
    if not row["scrapes"]:
        return f"{clock}  no usable scrape"
    if row["running_requests"] == 0 and not row["generation_tokens_per_second"]:
        return f"{clock}  idle"
    bound = "≥" if row["forward_passes_overcounted"] else ""
    said = [
        _told(row, "requests_per_forward_pass", lambda v: f"{bound}{figure(v)} requests a pass"),
        _told(row, "generation_tokens_per_second", lambda v: f"{figure(v)} tokens/s"),
        _told(row, "batch_assembly_wait_seconds", lambda v: f"wait {seconds(v)}"),
        _told(row, "kv_cache_usage_ratio", lambda v: f"KV {percent(v)}"),
        _told(row, "waiting_requests", lambda v: f"{count(v)} waiting"),
    ]
    if row["restarted"]:
        said.append("restarted")
    return f"{clock}  {', '.join(said)}"


def limit_line(row: Mapping[str, Any]) -> str:
    """``none binds: 0 waiting (both settings unknown)``, over what was seen of ten minutes."""
    unknown = [n for n in ("max_num_seqs", "max_num_batched_tokens") if row.get(n) is None]
    named = "both settings" if len(unknown) == 2 else " and ".join(unknown)
    note = f" ({named} unknown)" if unknown else ""
    share = row["limit_binding_share_10m_ratio"]
    if share is None:
        return "unknown: no scrape shows who waits"
    seen = f"the last {duration(min(row['observed_10m_seconds'] or 0.0, 600.0))}"
    binding = row["binding_limit"]
    if binding == "none":
        waited = "0 waiting" if share == 0 else f"requests waited in {percent(share)} of {seen}"
        return f"none binds: {waited}{note}"
    if binding is None:
        return f"one binds in {percent(share)} of {seen}, but which?{note}"
    inferred = " (inferred)" if row["max_num_seqs_inferred"] and binding == "max_num_seqs" else ""
    value = row.get(binding)
    setting = "" if value is None else f" {value:.0f}"
    return f"{clean(binding)}{setting}{inferred} binds in {percent(share)} of {seen}"


def _told(row: Mapping[str, Any], column: str, say: Any) -> str:
    value = row[column]
    return f"{column} unknown" if value is None else str(say(value))
