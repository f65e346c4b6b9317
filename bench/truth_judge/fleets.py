"""Scenarios as recordings with their truth, as ``driftwatch demo --write`` makes them.

The folder that it writes holds the compact recording, ``truth.json``, and the ``driftwatch.yaml``
that an operator of the pool would have written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from driftwatch.fleet.scenario.file import scenario_named
from driftwatch.fleet.truth import write_truth
from truth_judge.commands import Case
from truth_judge.due import with_due
from truth_judge.facts import Episode
from truth_judge.load import generate_with_load
from truth_judge.saturated import saturations
from truth_judge.sets import Draw

TRUTH, CONFIGURATION = "truth.json", "driftwatch.yaml"


def scenario_of(draw: Draw, folder: Path) -> str:
    """What names the scenario of a draw: a shipped one's name, or the file in its folder."""
    return draw.scenario if isinstance(draw.scenario, str) else str(folder / "scenario.yaml")


def made(draw: Draw, folder: Path) -> Case:
    """The case of a draw, its files in a new folder.

    Raises:
        RuntimeError: it could not be made; with what was said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not isinstance(draw.scenario, str):
        (folder / "scenario.yaml").write_text(json.dumps(draw.scenario))  # JSON is YAML
    into, scenario = folder / "compact", scenario_named(scenario_of(draw, folder))
    generate_with_load(scenario, draw.seed, into)
    write_truth(scenario, draw.seed, into)
    return case_of(into, draw.name, f"seed {draw.seed}")


def case_of(folder: Path, name: str, draw: str) -> Case:
    """What ``truth.json`` says of the recording beside it."""
    truth: dict[str, Any] = json.loads((folder / TRUTH).read_text())
    baseline = truth["baseline"]
    whole = [truth["start_seconds"], truth["end_seconds"]]
    return Case(
        name=name,
        draw=draw,
        recording=folder,
        start_seconds=whole[0],
        end_seconds=whole[1],
        instances=tuple(server["instance"] for server in truth["servers"]),
        episodes=with_due(
            [_episode(effect) for effect in truth["effects"]],
            saturations(folder, _share_of_target(folder)),
            [server["instance"] for server in truth["servers"]],
        ),
        reference=baseline and (baseline["start_seconds"], baseline["end_seconds"]),
        options=("-c", str(folder / CONFIGURATION)),
        present={
            server["instance"]: [(first, last) for first, last in server["listed"]]
            for server in truth["servers"]
            if server["listed"] != [whole]
        },
    )


def _share_of_target(folder: Path) -> float | None:
    """Share of requests that must meet the target of their first token; None = it is not known."""
    slo = yaml.safe_load((folder / CONFIGURATION).read_text())["pools"][0].get("slo", {})
    return float(slo.get("share", 0.95)) if "ttft_seconds" in slo else None


def _episode(effect: dict[str, Any]) -> Episode:
    return Episode(
        kind=effect["kind"],
        start_seconds=effect["start_seconds"],
        end_seconds=effect["end_seconds"],
        size=effect["size"],
        instances=frozenset(effect["instances"]),
        pages=frozenset(effect["pages"]),
        tickets=frozenset(effect["tickets"]),
        notices=frozenset(effect["notices"]),
        leaf=effect["leaf"],
        knob=effect["knob"],
        grace_seconds=effect["grace_seconds"],
    )
