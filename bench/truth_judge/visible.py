"""From when on a change of lengths can be seen, and whether driftwatch says that it would see it.

Lengths are observed when a request finishes. What was under way at the change finishes as it was,
so a change can be seen from the moment at which that many requests and 100 more have finished.
Counted from the recorded counters; the smallest detectable shift is read from the evidence table
that ``driftwatch replay`` wrote.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from truth_judge.commands import Case
from truth_judge.facts import Episode

ENOUGH = 100.0
SEEN_FROM = 1.2  # of a shift of 1.3: where the smallest detectable one is said to be no larger
_FINISHED, _UNDER_WAY = "generation_tokens_count", "running_requests"
_SIGNALS = {"prompt": ("prompt_tokens",), "generation": ("generation_tokens",)}


def with_visibility(case: Case, evidence: Path) -> Case:
    """The case with what is known of each of its episodes."""
    scrapes = _finished(case.recording)
    names = [f"{s}_smallest_detectable_ratio" for of in _SIGNALS.values() for s in of]
    held = pl.scan_parquet(evidence)
    there = [name for name in names if name in held.collect_schema().names()]
    said = held.select("instance", "end", *there).collect()
    episodes = tuple(
        replace(
            episode,
            visible_seconds=visible_from(scrapes, _of(case, episode), episode.start_seconds),
            detectable=detectable(said, case, episode),
        )
        for episode in case.episodes
    )
    return replace(case, episodes=episodes)


def _of(case: Case, episode: Episode) -> frozenset[str]:
    return episode.instances or frozenset(case.instances)


def _finished(recording: Path) -> pl.DataFrame:
    parts = sorted(recording.glob("*.scrapes.parquet"))
    columns = ["instance", "time", "ok", _FINISHED, _UNDER_WAY]
    whole = pl.concat(pl.read_parquet(part, columns=columns) for part in parts)
    return whole.filter(pl.col("ok"), pl.col(_FINISHED).is_not_null()).sort("instance", "time")


def visible_from(scrapes: pl.DataFrame, instances: frozenset[str], at: float) -> float | None:
    """When enough changed requests had finished, in unix seconds; None = never.

    Args:
        scrapes: instance, time, finished requests (a counter) and requests under way, in order.
        instances: the servers that the change is about, together.
        at: when it began.
    """
    edge = pl.from_epoch(pl.lit(int(at * 1e6)), time_unit="us").dt.replace_time_zone("UTC")
    own = scrapes.filter(pl.col("instance").is_in(sorted(instances)), pl.col("time") >= edge)
    grown = (
        pl.col(_FINISHED).cast(pl.Float64).diff().clip(lower_bound=0).fill_null(0).over("instance")
    )
    counted = own.with_columns(more=grown).sort("time")
    before = float(own.group_by("instance").first()[_UNDER_WAY].fill_null(0).sum())
    enough = counted.filter(pl.col("more").cum_sum() >= before + ENOUGH)
    if enough.is_empty():
        return None
    return float(enough["time"].dt.epoch("us")[0]) / 1e6


def detectable(said: pl.DataFrame, case: Case, episode: Episode) -> bool | None:
    """Whether a shift of :data:`SEEN_FROM` would be seen, by the last word before the episode.

    False where driftwatch does not say. Of a pool its servers' median counts; of a new client the
    prompts, which it changes most.
    """
    if "TrafficShift" not in episode.notices:
        return None  # against peers every replica has what it needs
    signal = "generation_tokens" if "generation" in episode.kind else "prompt_tokens"
    name = f"{signal}_smallest_detectable_ratio"
    if name not in said.columns:
        return False
    edge = pl.from_epoch(pl.lit(int(episode.start_seconds * 1e6)), time_unit="us")
    before = said.filter(
        pl.col("instance").is_in(sorted(_of(case, episode))),
        pl.col("end") <= edge.dt.replace_time_zone("UTC"),
    )
    last = before.group_by("instance").agg(pl.col(name).sort_by("end").last())[name].drop_nulls()
    return bool(len(last) and float(np.median(last.to_numpy())) <= SEEN_FROM)
