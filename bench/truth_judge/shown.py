"""Findings one by one, with what they rested on and what the scheduler had to do meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from truth_judge.facts import Finding, Stretch, seconds_of
from truth_judge.matching import alarms, detections
from truth_judge.running import PAGES_FILE, Ran

_AROUND_MINUTES = 5
_VERDICTS = {"false": ("false",), "wrong": ("unexpected",)}


def shown(which: str, ran: Sequence[Ran], folder: Path) -> Iterator[str]:
    """Lines about each finding, or each episode that nobody was told of.

    Args:
        which: ``false``, ``wrong`` (of another rule than is due in an episode) or ``missed``.
        ran: the stretches.
        folder: where their recordings and pages are kept.
    """
    if which == "missed":
        yield from _missed([one.stretch for one in ran])
        return
    for one in ran:
        own = folder / f"{one.stretch.name}-{one.stretch.draw.rpartition(' ')[2]}"
        pages = _pages(own)
        for alarm in alarms([one.stretch]):
            said = alarm.finding
            if alarm.verdict in _VERDICTS[which] and said.severity != "notice":
                yield from _finding(one.stretch, said, pages, own)


def _pages(folder: Path) -> dict[tuple[str, str | None, float], Mapping[str, Any]]:
    file = folder / PAGES_FILE
    if not file.exists():
        return {}
    found = json.loads(file.read_text())["found"]["pages"]
    return {
        (p["alert"], p["target"].get("instance"), seconds_of(p["times"]["evaluated_at"])): p
        for p in found
        if p["event"] == "firing"
    }


def _finding(
    stretch: Stretch,
    said: Finding,
    pages: Mapping[tuple[str, str | None, float], Mapping[str, Any]],
    folder: Path,
) -> Iterator[str]:
    minute = (said.at_seconds - stretch.start_seconds) / 60.0
    yield (
        f"{stretch.name}, {stretch.draw}, {said.instance or 'pool'}, minute {minute:.0f}: "
        f"{said.severity} {said.rule}, leaf {said.leaf}"
    )
    page = pages.get((said.rule, said.instance, said.at_seconds))
    if page is not None:
        told = {name: one.get("value") for name, one in page["evidence"].items()}
        yield "  evidence: " + ", ".join(f"{k}={_short(v)}" for k, v in told.items())
    around = [
        e
        for e in stretch.episodes
        if e.concerns(said.instance)
        and e.start_seconds - 3600 <= said.at_seconds <= e.end_seconds + 3600
    ]
    for one in around:
        span = [(t - stretch.start_seconds) / 60.0 for t in (one.start_seconds, one.end_seconds)]
        yield f"  near: {one.cell}, minutes {span[0]:.0f} to {span[1]:.0f}"
    yield from _load(said, folder)
    yield f"  recording: {folder / 'compact'}"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _load(said: Finding, folder: Path) -> Iterator[str]:
    files = sorted((folder / "compact").glob("*.load.parquet"))
    rows = pl.concat([pl.read_parquet(f) for f in files]) if files else pl.DataFrame()
    if rows.is_empty():
        return
    at = rows["time"].dt.epoch("us") / 1e6
    near = rows.filter((at > said.at_seconds - 60 * _AROUND_MINUTES) & (at <= said.at_seconds))
    if said.instance is not None:
        near = near.filter(pl.col("instance") == said.instance)
    means = near.select(pl.exclude("instance", "time").mean())
    if len(means):
        told = ", ".join(f"{k}={_short(v)}" for k, v in means.row(0, named=True).items())
        yield f"  scheduler, mean of {_AROUND_MINUTES} min before: {told}"


def _missed(stretches: Sequence[Stretch]) -> Iterator[str]:
    for one in detections(stretches):
        if one.delay_seconds is None and one.episode.asked:
            stretch, episode = one.stretch, one.episode
            span = [
                (t - stretch.start_seconds) / 60.0
                for t in (episode.start_seconds, episode.end_seconds)
            ]
            yield (
                f"{stretch.name}, {stretch.draw}, {', '.join(sorted(episode.instances))}: "
                f"{episode.cell}, minutes {span[0]:.0f} to {span[1]:.0f}, due: "
                + ", ".join(sorted(rule for _, rule in episode.asked))
            )
