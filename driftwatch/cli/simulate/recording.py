"""Requests rebuilt from a recording of /metrics, for ``driftwatch simulate run --recording``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.simulate.workload import Workload
    from driftwatch.simulate.workload.histograms import LengthHistogram, ScrapedWindow

_LENGTHS = ("prompt_tokens", "generation_tokens")
_NEEDED = ("running_requests", "waiting_requests", *(f"{name}_buckets" for name in _LENGTHS))


@dataclass(frozen=True, slots=True)
class Rebuild:
    """What of a recording is rebuilt."""

    path: Path  # the recording, text or Parquet
    server: str | None  # instance as scraped; None where it has only one
    window_seconds: float  # length of a window
    max_model_len: int | None  # bounds the lengths above the last bucket edge
    block_size: int  # prefix hits come in blocks of so many tokens
    seed: int  # of what is drawn


def rebuilt(options: Rebuild) -> Workload:
    """The requests that one recorded engine served; arrivals count from its first scrape.

    Raises:
        RecordingError: there is no recording at the path.
        UsageError: several servers or engines, and none or an unknown one is named.
        NoVerdict: a series that is needed is not recorded, or nothing finished.
        WorkloadError: the histograms contradict themselves, or lengths have no upper bound.
    """
    from driftwatch.collect.recordings import open_recording
    from driftwatch.simulate.workload import Workload
    from driftwatch.simulate.workload.histograms import rebuild

    source = open_recording(options.path)
    scrapes = source.collect(*source.span()).scrapes
    rows = _of_server(scrapes, options)
    windows, left_out = _windows(rows, options.window_seconds)
    if not any(window.finished for window in windows):
        raise NoVerdict(
            f"{options.path}: no request finished within a window of {options.window_seconds:g} s",
            help_text="their lengths are only seen when requests finish; try --window-seconds",
        )
    result = rebuild(
        windows,
        np.random.default_rng(options.seed),
        max_model_len=options.max_model_len,
        block_size=options.block_size,
    )
    notes = [
        f"rebuilt from {len(windows)} windows of {options.window_seconds:g} s",
        *result.unknown,
    ]
    if left_out:
        notes.append(
            f"{left_out} windows left out: a restart, other buckets, or no scrape; nothing is "
            "sent in them, which is not what happened"
        )
    return Workload(result.requests, "rebuilt from /metrics", tuple(notes))


def _of_server(scrapes: pl.DataFrame, options: Rebuild) -> pl.DataFrame:
    """Usable scrapes of one engine, in order."""
    import polars as pl

    usable = scrapes.filter(pl.col("ok"))
    if options.server is not None:
        usable = usable.filter(pl.col("instance") == options.server)
    there = usable.select("instance", "engine").unique().sort("instance", "engine").rows()
    if len(there) != 1:
        names = sorted(set(scrapes["instance"].to_list()))
        if options.server is not None and options.server not in names:
            raise UsageError(
                f"--server {options.server}: not in {options.path}",
                help_text=f"there: {', '.join(names[:12])}",
            )
        if not there:
            raise NoVerdict(f"{options.path}: no usable scrape")
        engines = ", ".join(f"{instance} engine {engine}" for instance, engine in there[:12])
        raise UsageError(
            f"{options.path} holds {len(there)} engines: {engines}",
            help_text="name one with --server; of a server with several engines none can be told",
        )
    missing = [name for name in _NEEDED if usable[name].null_count() == usable.height]
    if missing:
        raise NoVerdict(f"{options.path}: not recorded: {', '.join(missing)}")
    return usable.drop_nulls(list(_NEEDED)).sort("time")


def _windows(rows: pl.DataFrame, window_seconds: float) -> tuple[list[ScrapedWindow], int]:
    """Windows between scrapes, and how many cannot be compared."""
    import polars as pl

    seconds = rows["time"].dt.epoch("us").to_numpy() / 1e6
    seconds = seconds - seconds[0] if len(seconds) else seconds
    number = np.floor(seconds / window_seconds).astype(np.int64)
    chosen = np.flatnonzero(np.diff(number, prepend=-1) > 0)
    if len(seconds) and len(seconds) - 1 not in chosen:
        chosen = np.append(chosen, len(seconds) - 1)  # the last window may be a short one
    picked = rows.with_columns(pl.Series("at_seconds", seconds))[chosen].rows(named=True)
    windows, left_out = [], 0
    for before, after in pairwise(picked):
        window = _window(before, after)
        # twice as long means that the scrapes between are missing
        if window is None or after["at_seconds"] - before["at_seconds"] > 2 * window_seconds:
            left_out += 1
        else:
            windows.append(window)
    return windows, left_out


def _window(before: dict[str, Any], after: dict[str, Any]) -> ScrapedWindow | None:
    """What happened between two scrapes; None where they cannot be compared."""
    from driftwatch.simulate.workload.histograms import ScrapedWindow

    lengths = [_grown(before, after, name) for name in _LENGTHS]
    prompt, generation = lengths
    if prompt is None or generation is None:
        return None
    ratio = None
    queries = (before["prefix_cache_queries_total"], after["prefix_cache_queries_total"])
    hits = (before["prefix_cache_hits_total"], after["prefix_cache_hits_total"])
    if None not in queries and None not in hits:
        asked_tokens = queries[1] - queries[0]
        # a restart is seen in the histograms; no look-up is no hit
        ratio = min(1.0, max(0.0, (hits[1] - hits[0]) / asked_tokens)) if asked_tokens > 0 else 0.0
    return ScrapedWindow(
        before["at_seconds"],
        after["at_seconds"],
        int(before["running_requests"]),
        int(after["running_requests"]),
        int(before["waiting_requests"]),
        int(after["waiting_requests"]),
        prompt,
        generation,
        ratio,
    )


def _grown(before: dict[str, Any], after: dict[str, Any], name: str) -> LengthHistogram | None:
    from driftwatch.simulate.workload.histograms import LengthHistogram

    edges, buckets = after[f"{name}_edges"], after[f"{name}_buckets"]
    if edges != before[f"{name}_edges"] or len(edges) != len(before[f"{name}_buckets"]):
        return None
    cumulative = np.subtract(buckets, before[f"{name}_buckets"])
    counts = np.diff(cumulative, prepend=0.0)
    if (counts < 0).any():
        return None
    total = after[f"{name}_sum"] - before[f"{name}_sum"]
    return LengthHistogram(np.array(edges[:-1]), counts.astype(np.int64), float(total))
