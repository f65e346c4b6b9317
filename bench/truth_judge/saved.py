"""What came of stretches, as JSON and back: runs of many hours are made in parts and put together.

python bench/truth.py --merge A.json B.json --out BOTH.json
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from truth_judge.facts import Episode, Finding, Stretch
from truth_judge.figures import Verdict
from truth_judge.healthy import Wander
from truth_judge.running import Ran

_SETS = ("instances", "pages", "tickets", "notices", "allowed", "also")


def as_json(ran: Ran) -> dict[str, Any]:
    """Everything of it; sets as sorted lists."""
    found = asdict(ran)
    for episode in found["stretch"]["episodes"]:
        episode.update({name: sorted(episode[name]) for name in _SETS})
        episode["waited"] = {
            name: [(at, sorted(full)) for at, full in minutes]
            for name, minutes in episode["waited"].items()
        }
    return found


def from_json(said: Mapping[str, Any]) -> Ran:
    """What :func:`as_json` gave."""
    stretch = dict(said["stretch"])
    fields: list[dict[str, Any]] = [
        {k: frozenset(v) if k in _SETS else v for k, v in episode.items()}
        | {
            "waited": {
                name: [(at, frozenset(full)) for at, full in minutes]
                for name, minutes in episode.get("waited", {}).items()
            }
        }
        for episode in stretch["episodes"]
    ]
    stretch |= {
        "instances": tuple(stretch["instances"]),
        "episodes": tuple(Episode(**one) for one in fields),
        "findings": tuple(Finding(**finding) for finding in stretch["findings"]),
    }
    return Ran(
        **{
            **said,
            "stretch": Stretch(**stretch),
            "explained": [_verdict(one, stretch["draw"]) for one in said["explained"]],
            "paged": [_verdict(one, stretch["draw"]) for one in said["paged"]],
            "simple": {
                rule: [Finding(**one) for one in told]
                for rule, told in said.get("simple", {}).items()
            },
            "wanders": [Wander(**one) for one in said["wanders"]],
        }
    )


def _verdict(said: Sequence[Any], draw: str) -> Verdict:
    """Older files know no day: the whole draw is a block then."""
    day = said[2][1] if len(said) > 2 else 0
    return Verdict(said[0], said[1], (draw, day))


def merged(files: Iterable[Path]) -> tuple[list[Ran], list[dict[str, Any]]]:
    """The stretches of several runs, each draw once, and the runs' figures.

    Raises:
        ValueError: a draw is in two of them, or one holds no stretches.
    """
    ran: dict[tuple[str, str], Ran] = {}
    runs = []
    for file in files:
        figures = json.loads(file.read_text())
        if "ran" not in figures:
            raise ValueError(f"{file}: holds no stretches; it was not made by truth.py --out")
        runs.append(figures)
        for one in map(from_json, figures.pop("ran")):
            key = (one.stretch.name, one.stretch.draw)
            if key in ran:
                raise ValueError(f"{file}: {one.stretch.name}, {one.stretch.draw}, is in two files")
            ran[key] = one
    return list(ran.values()), runs
