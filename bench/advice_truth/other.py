"""What another checkout advises on the same cases: run with that checkout's modules on the path.

Reads a line a case (its fields as JSON), writes a line a case: the knobs that it would turn. Its
own bench shows it the case, as it shows it to itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any


def asked_of(tree: Path, cases: Sequence[Any]) -> list[dict[str, float]]:
    """Knobs that the checkout in ``tree`` turns in each case; empty where it turns none."""
    env = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'bench'}"}
    lines = "\n".join(json.dumps(asdict(case)) for case in cases)
    found = subprocess.run(
        [sys.executable, "-W", "ignore", __file__],
        input=lines,
        capture_output=True,
        text=True,
        env=env,
        cwd=tree,
        check=True,
    )
    return [dict(json.loads(line)) for line in found.stdout.splitlines()]


def _answers(lines: Iterator[str]) -> Iterator[Mapping[str, float]]:
    from advice_truth.cases import Case
    from advice_truth.shown import question_of
    from driftwatch.recommend.advise import advise

    for line in lines:
        said = json.loads(line)
        case = Case(**{**said, "drift": tuple(said["drift"])})
        try:
            advice = advise(question_of(case))
        except Exception:  # noqa: BLE001 that it breaks is no advice
            yield {}
            continue
        yield {move.knob: move.to_value for move in advice.advice.moves}


if __name__ == "__main__":
    sys.path[0] = ""  # this file's folder would hide the checkout's own modules
    for knobs in _answers(iter(sys.stdin)):
        print(json.dumps(dict(knobs)), flush=True)
