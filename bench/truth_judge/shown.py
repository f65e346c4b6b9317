"""Findings that are wrong, and episodes that nobody was told of, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from truth_judge.facts import Episode, Stretch
from truth_judge.matching import alarms, detections

_VERDICTS = {"false": "false", "wrong": "unexpected"}


def shown(which: str, stretches: Iterable[Stretch]) -> Iterator[str]:
    """Lines about each finding, or each episode."""
    for stretch in stretches:
        if which == "missed":
            for one in detections([stretch]):
                if one.delay_seconds is None and one.episode.asked:
                    due = ", ".join(sorted(rule for _, rule in one.episode.asked))
                    whom = ", ".join(sorted(one.episode.instances))
                    yield (
                        f"{stretch.name}, {stretch.draw}, {whom}: {_span(stretch, one.episode)}, "
                        f"due: {due}"
                    )
            continue
        for alarm in alarms([stretch]):
            said = alarm.finding
            if alarm.verdict != _VERDICTS[which] or said.severity == "notice":
                continue
            minute = (said.at_seconds - stretch.start_seconds) / 60.0
            whom = ", ".join(sorted(said.instances)) or "pool"
            yield (
                f"{stretch.name}, {stretch.draw}, {whom}, minute {minute:.0f}: {said.severity} "
                f"{said.rule}, leaf {said.leaf}"
            )
            for near in stretch.episodes:
                inside = near.start_seconds - 3600 <= said.at_seconds <= near.end_seconds + 3600
                if inside and near.concerns(*said.instances):
                    yield f"  near: {_span(stretch, near)}"


def _span(stretch: Stretch, episode: Episode) -> str:
    first, last = (
        (t - stretch.start_seconds) / 60.0 for t in (episode.start_seconds, episode.end_seconds)
    )
    return f"{episode.cell}, minutes {first:.0f} to {last:.0f}"
