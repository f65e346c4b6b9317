"""The recorded runs of real vLLM servers as cases: their truth is what was sent and injected.

``phases.json`` says what the load generator sent and how the engine was slowed, and
``phase_summary.json`` what was measured inside; nothing is read from a name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from truth_judge.commands import Case
from truth_judge.facts import GRACE_SECONDS, Episode

INSTANCE = "host:8000"  # what driftwatch calls the server of a recording that names none
LENGTHS_MOVED, RATE_FELL = 1.5, 0.67  # the smallest drift that must be noticed; a drop
AT_CAP = 0.5  # share of the run's own scrapes with the cap full


def recorded_cases(vllm: Path) -> list[Case]:
    """Every folder with scrapes and phases, in order of name."""
    folders = sorted(path.parent for path in vllm.glob("*/phases.json"))
    return [recorded_case(folder) for folder in folders if (folder / "scrapes.jsonl.gz").exists()]


def recorded_case(folder: Path) -> Case:
    """One recorded run; the reference is its first phase under load."""
    phases = json.loads((folder / "phases.json").read_text())["phases"]
    measured = {p["phase"]: p for p in json.loads((folder / "phase_summary.json").read_text())}
    loaded = [p for p in phases if p["submitted"]]
    first = loaded[0]
    episodes = [
        replace(episode, grace_seconds=_grace(phase, phases))
        for phase in loaded[1:]
        for episode in _episodes(phase, first, measured[phase["name"]])
    ]
    return Case(
        name=folder.name,
        draw=f"recorded {folder.name}",
        recording=folder / "scrapes.jsonl.gz",
        start_seconds=phases[0]["start"],
        end_seconds=phases[-1]["end"],
        instances=(INSTANCE,),
        episodes=tuple(episodes),
        reference=(first["start"], first["end"]),
    )


def _episodes(
    phase: Mapping[str, Any], first: Mapping[str, Any], measured: Mapping[str, Any]
) -> list[Episode]:
    started = Episode("", phase["start"], phase["end"])
    if phase.get("extra"):
        return [
            replace(
                started,
                kind="slowdown",
                size=round(1 - 1 / (1 + phase["extra"]), 2),  # of its speed, as the scenarios say
                pages=frozenset({"SlowerAtEqualLoad"}),
                leaf="scheduler_regression",
            )
        ]
    if measured.get("share_scrapes_running_at_cap", 0.0) >= AT_CAP:
        return [
            replace(
                started,
                kind="sequence_cap",
                pages=frozenset({"BatchLimitBinding"}),
                leaf="concurrency_cap_binding",
                knob="max_num_seqs",
            )
        ]
    for kind, key in (("prompt_length", "prompt"), ("generation_length", "gen")):
        times = phase[key]["mean"] / first[key]["mean"]
        if times >= LENGTHS_MOVED:
            return [
                replace(
                    started,
                    kind=kind,
                    size=times,
                    notices=frozenset({"LengthDrift"}),
                    leaf="drifted_within_limits",
                )
            ]
    rate = _rate(phase) / _rate(first)
    if rate <= RATE_FELL:
        return [replace(started, kind="rate", size=round(rate, 2), leaf="request_rate_drop")]
    return []


def _grace(phase: Mapping[str, Any], phases: Sequence[Mapping[str, Any]]) -> float:
    """None beyond the next phase: what fires there is of that one, and false if it is healthy."""
    following = [p["start"] for p in phases if p["start"] >= phase["end"]]
    return float(min([GRACE_SECONDS, *(start - phase["end"] for start in following)]))


def _rate(phase: Mapping[str, Any]) -> float:
    """Requests a second that were sent."""
    return float(phase["submitted"]) / float(phase["end"] - phase["start"])
