"""Runs of the bench on disk: gone on with, put together."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from advice_truth.asked import Result
from advice_truth.counted import figures
from advice_truth.truths import write


def before(
    out: Path | None, seed: int, code: str, asked_after: int | None = None
) -> tuple[list[Result], list[int]]:
    """What a run that was stopped has told already, and the cases that have nothing to judge.

    Args:
        out: its file; None = it has none.
        seed: of the cases.
        code: digest of the product that is asked: answers of another one are not taken.
        asked_after: minutes from the drift to the question; None = as each case has it.
    """
    if out is None or not out.exists():
        return [], []
    said = json.loads(out.read_text())
    run = (said.get("code"), said.get("seed"), said.get("asked_after_minutes"))
    if run != (code, seed, asked_after):
        print(f"{out} is of other code, another seed or time: begun again", file=sys.stderr)
        return [], []
    return [Result(**one) for one in said["results"]], list(said["unjudged"])


def written(path: Path, results: Sequence[Result], run: Mapping[str, Any]) -> None:
    """Figures and cases of a run, with what is said of it."""
    made = {"figures": figures(results), "results": [asdict(one) for one in results]}
    write(path, json.dumps({**run, **made}, indent=1))


def merged(files: Sequence[Path]) -> list[Result]:
    """The cases of several runs.

    Raises:
        ValueError: a case is in two of them.
    """
    found: dict[tuple[int, int], Result] = {}
    for file in files:
        for said in json.loads(file.read_text())["results"]:
            one = Result(**said)
            if (one.seed, one.number) in found:
                raise ValueError(f"{file}: case {one.number} of seed {one.seed} is in two files")
            found[one.seed, one.number] = one
    return list(found.values())
