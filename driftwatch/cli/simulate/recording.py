"""Requests rebuilt from a recording of /metrics, for ``driftwatch simulate run --recording``."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.simulate.configuration import SchedulerConfiguration
    from driftwatch.simulate.workload import Workload
    from driftwatch.simulate.workload.histograms import LengthHistogram, ScrapedWindow

_LENGTHS = ("prompt_tokens", "generation_tokens")
_NEEDED = ("running_requests", "waiting_requests", *(f"{name}_buckets" for name in _LENGTHS))


def rebuilt(
    path: Path,
    server: str | None,
    window_seconds: float,
    configuration: SchedulerConfiguration,
    seed: int,
) -> Workload:
    """The requests that one recorded engine served; arrivals count from its first scrape.

    Raises RecordingError: there is no recording at the path; UsageError: several servers or
    engines, and none or an unknown one is named; NoVerdict: a series that is needed is not
    recorded, or nothing finished; WorkloadError: the histograms contradict themselves, or lengths
    have no upper bound.
    """
    from driftwatch.collect.recordings import open_recording
    from driftwatch.simulate.workload import Workload
    from driftwatch.simulate.workload.histograms import rebuild

    source = open_recording(path)
    scrapes = source.collect(*source.span()).scrapes
    windows, left_out = _windows(_of_server(scrapes, path, server), window_seconds)
    if not any(window.finished for window in windows):
        raise NoVerdict(
            f"{path}: no request finished within a window of {window_seconds:g} s",
            help_text="their lengths are recorded when requests finish; try --window-seconds",
        )
    requests, unknown = rebuild(
        windows,
        np.random.default_rng(seed),
        max_model_len=configuration.max_model_len,
        block_size=configuration.block_size,
    )
    notes = [f"rebuilt from {len(windows)} windows of {window_seconds:g} s", *unknown]
    if left_out:
        notes.append(
            f"{left_out} windows left out: a restart, other buckets, or no scrape; nothing is "
            "sent in them, which is not what happened"
        )
    return Workload(requests, "rebuilt from /metrics", tuple(notes))


def _of_server(scrapes: pl.DataFrame, path: Path, server: str | None) -> pl.DataFrame:
    """Usable scrapes of one engine, in order."""
    import polars as pl

    usable = scrapes.filter(pl.col("ok"))
    if server is not None:
        usable = usable.filter(pl.col("instance") == server)
    there = usable.select("instance", "engine").unique().sort("instance", "engine").rows()
    if len(there) != 1:
        names = sorted(set(scrapes["instance"].to_list()))
        if server is not None and server not in names:
            raise UsageError(
                f"--server {server}: not in {path}",
                help_text=f"there: {', '.join(names[:12])}",
            )
        if not there:
            raise NoVerdict(f"{path}: no usable scrape")
        engines = ", ".join(f"{instance} engine {engine}" for instance, engine in there[:12])
        raise UsageError(
            f"{path} holds {len(there)} engines: {engines}",
            help_text="name one with --server; a server with several engines cannot be rebuilt",
        )
    missing = [name for name in _NEEDED if usable[name].null_count() == usable.height]
    if missing:
        raise NoVerdict(f"{path}: not recorded: {', '.join(missing)}")
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
