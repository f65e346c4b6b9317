"""How long an answer takes: calibrate + sweep of an hour of traffic on one thread, by kind of case.

    python bench/advice_time.py [--seed N] [--cases K] [--keep DIR] [--list]

The cases are those of bench/recommend.py (its --keep folder saves making them), asked as a page
asks, without the table. Each is asked as it is shown and once more with max_num_seqs unknown. Time
is processor time of this process after a first answer, which compiles. Kinds overlap: a server may
be overloaded and cache prefixes. Exit status 1 where the 95th percentile of all is over the goal.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

for name in ("POLARS_MAX_THREADS", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import numpy as np  # noqa: E402
from advice_truth.cases import Case  # noqa: E402
from advice_truth.shown import question_of  # noqa: E402
from advice_truth.truths import Truths  # noqa: E402

from driftwatch.recommend.advice import Advice, Question  # noqa: E402
from driftwatch.recommend.advise import advise  # noqa: E402
from driftwatch.recommend.prepare import prepare  # noqa: E402

GOAL_SECONDS = 1.5
OVERLOADED = 1.5  # times the capacity: the queue grows by half of what comes


@dataclass(frozen=True, slots=True)
class Timed:
    """One answer.

    Attributes:
        kinds: what it is an example of.
        seconds: of advise().
        prepare_seconds: of traffic, calibration and gates; the rest is the sweep.
    """

    kinds: tuple[str, ...]
    seconds: float
    prepare_seconds: float


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--keep", type=Path, help="folder of cases that were made before")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    found: list[Timed] = []
    for number, one in enumerate(_timed(Truths(asked.keep), asked.seed, asked.cases)):
        found.append(one)
        if asked.list:
            print(f"{number:3} {one.seconds:.2f} s, {', '.join(one.kinds)}", flush=True)
    print(text_of(found))
    all_of_them = [one.seconds for one in found if "all" in one.kinds]
    return int(float(np.quantile(all_of_them, 0.95)) > GOAL_SECONDS)


def _timed(truths: Truths, seed: int, count: int) -> Iterator[Timed]:
    for number in range(count):
        case = truths.case(seed, number)
        question = question_of(case)
        if number == 0:
            advise(question, table=False)  # compiled once
        yield _asked(question, partial(kinds_of, case))
        serving = replace(question.server.serving, max_num_seqs=None)
        unknown = replace(question, server=replace(question.server, serving=serving))
        yield _asked(unknown, lambda _: ("S unknown",))


def _asked(question: Question, kinds: Callable[[Advice], tuple[str, ...]]) -> Timed:
    started = time.process_time()
    answer = advise(question, table=False)
    seconds = time.process_time() - started
    started = time.process_time()
    prepare(question, None)
    prepared = time.process_time() - started
    return Timed(kinds(answer), seconds, prepared)


def kinds_of(case: Case, answer: Advice) -> tuple[str, ...]:
    """All, and each kind that the case is one of."""
    used = answer.utilization_ratio
    kinds = {
        "B unknown": not case.knows_budget,
        "heavy overload": used is not None and used > OVERLOADED,
        "prefix cache": case.scenario.traffic.prefix_hit_ratio > 0,
        "a change advised": answer.recommendation.action == "change",
        "refused": answer.recommendation.action == "insufficient",
    }
    found = [name for name, is_one in kinds.items() if is_one]
    return ("all", *(found or ["normal"]))


def text_of(found: list[Timed]) -> str:
    """Percentiles of each kind, and how much of the goal they are."""
    by_kind: dict[str, list[Timed]] = defaultdict(list)
    for one in found:
        for kind in one.kinds:
            by_kind[kind].append(one)
    lines = [f"{'kind':18}{'n':>4}{'p50':>8}{'p95':>8}{'worst':>8}  seconds; prepare p50; p95/goal"]
    for kind, some in by_kind.items():
        seconds = np.array([one.seconds for one in some])
        p50, p95 = (float(value) for value in np.quantile(seconds, [0.5, 0.95]))
        prepared = float(np.median([one.prepare_seconds for one in some]))
        lines.append(
            f"{kind:18}{len(some):4}{p50:8.2f}{p95:8.2f}{seconds.max():8.2f}  {prepared:.2f}; "
            f"{p95 / GOAL_SECONDS:.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
