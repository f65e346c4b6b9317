"""Advice on random servers with hidden engines: gain captured, harm, refusals, and what it costs.

    python bench/recommend.py --seed 5 --cases 60 [--first N] [--out FILE.json] [--list]

Each case is a server of the replayable fleet (step jitter, wander, stalls, CUDA-graph steps and a
quadratic attention term: a form that no variant of the calibration has) whose lengths or demand
drift. What advise() sees is what its pages show. Truth is the hidden engine run again with the
advised setting and with a ladder of one knob at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]
# One thread, as the goal counts it; with more the figure is of how many threads there are.
for name in ("POLARS_MAX_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from advice_truth.asked import result_of  # noqa: E402
from advice_truth.cases import case_of  # noqa: E402
from advice_truth.counted import figures, line_of, text  # noqa: E402
from advice_truth.truths import Truth  # noqa: E402


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="figures and cases")
    parser.add_argument("--list", action="store_true", help="each case on a line")
    given = parser.parse_args(argv)
    results = []
    for number in range(given.first, given.first + given.cases):
        case = case_of(given.seed, number)
        one = result_of(given.seed, number, case, Truth(case))
        if one is None:
            continue
        results.append(one)
        if given.list:
            print(line_of(one), flush=True)
    found = figures(results)
    print(text(found))
    if given.out is not None:
        told = {"seed": given.seed, "figures": found, "results": [asdict(one) for one in results]}
        given.out.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
