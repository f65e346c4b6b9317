"""Advice on random servers with hidden engines: gain captured, harm, refusals, and what it costs.

    python bench/recommend.py --seed 5 --seed 6 --cases 60 --jobs 2 [--list]

Each case is a server of the replayable fleet (step jitter, wander, stalls, CUDA-graph steps and a
quadratic attention term) whose lengths or demand drift. What advise() sees is what its pages show.
Truth is the hidden engine run again with each advised setting and with a ladder of one knob at a
time. Beside driftwatch: a closed form and the folk rule. Seeds 1 to 99 are for
working, those from 7001 on for the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]
# One thread, as the goal counts it; with more the figure is of how many threads there are.
for name in ("POLARS_MAX_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from advice_truth.asked import Result, result_of  # noqa: E402
from advice_truth.cases import case_of  # noqa: E402
from advice_truth.counted import figures, line_of, text  # noqa: E402
from advice_truth.truths import Truth  # noqa: E402

Share = tuple[int, list[int]]  # seed, numbers


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--cases", type=int, default=40, help="of each seed")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="figures and cases")
    parser.add_argument("--list", action="store_true", help="each case on a line")
    given = parser.parse_args(argv)
    numbers = range(given.first, given.first + given.cases)
    shares: list[Share] = [
        (seed, list(numbers)[part :: given.jobs])
        for seed in given.seed or [5]
        for part in range(given.jobs)
    ]
    with get_context("spawn").Pool(given.jobs) as pool:  # polars must not be forked
        results = [one for some in pool.imap(_results, shares) for one in some]
    results.sort(key=lambda one: (one.seed, one.number))
    if given.list:
        print("\n".join(map(line_of, results)))
    found = figures(results)
    print(text(found))
    if given.out is not None:
        told = {"figures": found, "results": [asdict(one) for one in results]}
        given.out.write_text(json.dumps(told, indent=1))


def _results(share: Share) -> list[Result]:
    seed, numbers = share
    cases = ((number, case_of(seed, number)) for number in numbers)
    results = (result_of(seed, number, case, Truth(case)) for number, case in cases)
    return [one for one in results if one is not None]


if __name__ == "__main__":
    main()
