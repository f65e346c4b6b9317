"""Scenarios as recordings with their truth: made by the fleet, read back as cases.

    python -m truth_judge.fleets SCENARIO SEED FOLDER

writes the compact recording of one scenario (a shipped one's name, or a file), its ``truth.json``
and the ``driftwatch.yaml`` that an operator of the pool would have. Each is made in a process of
its own, so that several are made side by side.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from truth_judge.commands import Case
from truth_judge.facts import Episode
from truth_judge.sets import Draw

RECORDING, TRUTH, CONFIGURATION = "recording", "truth.json", "driftwatch.yaml"


def make(scenario: str, seed: int, folder: Path) -> None:
    """One scenario's recording, truth and configuration in a folder."""
    from driftwatch.testing.fleet.generate import generate, targets_of
    from driftwatch.testing.fleet.scenario_file import scenario_named
    from driftwatch.testing.fleet.truth import write_truth
    from driftwatch.testing.fleet.write_compact import write_manifest, write_part

    made = scenario_named(scenario)
    into = folder / RECORDING
    into.mkdir(parents=True)
    parts = []
    for k, chunk in enumerate(generate(made, seed)):
        if not chunk.scrapes.is_empty():
            stem = f"{k:06}.{chunk.number:04}"
            parts += write_part(into, stem, chunk.scrapes, chunk.gpus)
    write_manifest(into, parts, targets_of(made))
    write_truth(made, seed, folder, RECORDING)


def scenario_of(draw: Draw, folder: Path) -> str:
    """What names the scenario of a draw: a shipped one's name, or the file in its folder."""
    return draw.scenario if isinstance(draw.scenario, str) else str(folder / "scenario.yaml")


def made(draw: Draw, folder: Path) -> Case:
    """The case of a draw; its recording is made in a process of its own.

    Raises:
        RuntimeError: it could not be made; with what was said.
    """
    folder.mkdir(parents=True)
    scenario = scenario_of(draw, folder)
    if not isinstance(draw.scenario, str):
        Path(scenario).write_text(json.dumps(draw.scenario, indent=1))  # JSON is YAML
    words = [sys.executable, "-m", "truth_judge.fleets", scenario, str(draw.seed), str(folder)]
    here = Path(__file__).resolve().parents[1]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, cwd=here)
    if ran.returncode != 0:
        raise RuntimeError(f"{draw.name}, seed {draw.seed}: {ran.stderr[-2000:]}")
    return case_of(folder, draw.name, f"seed {draw.seed}")


def case_of(folder: Path, name: str, draw: str) -> Case:
    """What ``truth.json`` says of the recording beside it."""
    truth: dict[str, Any] = json.loads((folder / TRUTH).read_text())
    baseline = truth["baseline"]
    whole = [truth["start_seconds"], truth["end_seconds"]]
    return Case(
        name=name,
        draw=draw,
        recording=folder / RECORDING,
        start_seconds=whole[0],
        end_seconds=whole[1],
        instances=tuple(server["instance"] for server in truth["servers"]),
        episodes=tuple(_episode(effect) for effect in truth["effects"]),
        reference=baseline and (baseline["start_seconds"], baseline["end_seconds"]),
        options=("-c", str(folder / CONFIGURATION)),
        present={
            server["instance"]: [(first, last) for first, last in server["listed"]]
            for server in truth["servers"]
            if server["listed"] != [whole]
        },
    )


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


if __name__ == "__main__":
    make(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
