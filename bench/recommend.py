"""Advice on random servers with hidden engines: gain captured, harm, refusals, and what it costs.

    python bench/recommend.py --seed 5 --cases 60 --keep DIR --out FILE.json [--list]
    python bench/recommend.py --seed 5 --cases 60 --keep DIR --truths
    python bench/recommend.py --merge FILE.json... [--against FILE.json...]
    python bench/recommend.py --seed 5 --cases 60 --keep DIR --asked-after 5

Each case is a server of the replayable fleet (step jitter, wander, stalls, CUDA-graph steps and a
quadratic attention term: a form that no variant of the calibration has) whose lengths or demand
drift. What advise() sees is what its pages show. Truth is the hidden engine run again with the
advised setting and with a ladder of one knob at a time.

With --keep cases and truths are made once and taken again: what is left is advise() and the pages
it reads. A run that was stopped goes on where --out ends, if the product's code is still the same;
else it begins again. --against sets two runs beside each other, case by case.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]
# One thread, as the goal counts it; with more the figure is of how many threads there are.
for name in ("POLARS_MAX_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from advice_truth.asked import Result, made_known, result_of  # noqa: E402
from advice_truth.cases import DRIFT_AT  # noqa: E402
from advice_truth.counted import (  # noqa: E402
    compared,
    comparison_text,
    figures,
    line_of,
    text,
)
from advice_truth.kept import before, merged, written  # noqa: E402
from advice_truth.truths import Truths, digest_of  # noqa: E402

# What an answer depends on: the product, and what the bench shows it of a case.
ASKED = ("driftwatch", "bench/advice_truth")


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    given = _arguments(argv)
    truths = Truths(given.keep)
    if given.truths:
        for number in range(given.first, given.first + given.cases):
            case = truths.case(given.seed, number)
            made_known(case, truths.of(case))
        return
    results = merged(given.merge) if given.merge else _asked(given, truths)
    print(text(figures(results)))
    if given.merge and given.out is not None:
        written(given.out, results, {"merged": [str(path) for path in given.merge]})
    if given.against:
        print()
        print(comparison_text(compared(merged(given.against), results)))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="cases and truths, made once")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="after each case")
    parser.add_argument(
        "--asked-after",
        type=int,
        choices=range(1, 50),
        metavar="MINUTES",
        help="since the drift; without it 11 to 25, drawn by the case",
    )
    parser.add_argument("--truths", action="store_true", help="make them, ask nothing")
    parser.add_argument("--list", action="store_true", help="each case on a line")
    files: dict[str, Any] = {"type": Path, "nargs": "+", "metavar": "FILE.json"}
    parser.add_argument("--merge", help="run nothing: figures of these together", **files)
    parser.add_argument("--against", help="an earlier run, compared case by case", **files)
    given = parser.parse_args(argv)
    if given.truths and given.keep is None:
        parser.error("--truths needs --keep: truths that are not kept are of no use")
    return given


def _asked(given: argparse.Namespace, truths: Truths) -> list[Result]:
    """Every case in its turn; the file is whole after each."""
    code = digest_of(ASKED)
    results, unjudged = before(given.out, given.seed, code, given.asked_after)
    done = {one.number for one in results} | set(unjudged)
    for number in range(given.first, given.first + given.cases):
        if number in done:
            continue
        case = truths.case(given.seed, number)
        if given.asked_after is not None:
            case = replace(case, asked_at=DRIFT_AT + 60.0 * given.asked_after)
        one = result_of(given.seed, number, case, truths.of(case))
        if one is None:
            unjudged.append(number)
        else:
            results.append(one)
            if given.list:
                print(line_of(one), flush=True)
        if given.out is not None:
            run = {"seed": given.seed, "commit": _commit(), "code": code, "unjudged": unjudged}
            run["asked_after_minutes"] = given.asked_after
            written(given.out, results, run)
    return results


def _commit() -> str:
    told = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return told.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
