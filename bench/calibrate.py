"""How good the calibration is: recorded GPU runs, real CPU runs, hidden engines, and its time.

    python bench/calibrate.py [--seed N] [--cases K] [--only gpu,cpu,hidden,intervals] [--minutes M]

Time is processor time of this process. Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "tests/recommend/calibration")]

import numpy as np  # noqa: E402
from calibrating import cpu_runs, gpu_runs, hidden, intervals  # noqa: E402

SHARED = ROOT.parent / "shared" / "data"
QUANTITIES = ("itl", "tokens", "ttft")


def report_hidden(seed: int, count: int) -> bool:
    """Print the figures of hidden engines; whether the time is within its goal."""
    found: dict[bool, list[hidden.Forecast]] = {True: [], False: []}
    refused = {True: 0, False: 0}
    times = []
    for case in hidden.cases(SHARED, seed, count):
        for known in (True, False):
            calibration, made, took = hidden.judge(case, known)
            times.append(took)
            if not calibration.identifiable:
                refused[known] += 1
                continue
            found[known] += made
    for known, forecasts in found.items():
        words = "with its datasheet" if known else "model unknown"
        print(f"hidden engines, {words}: {len(forecasts)} forecasts, {refused[known]} refused")
        for name in QUANTITIES:
            kept = [f for f in forecasts if name != "ttft" or f.was["waited"] < 1.0]
            off = np.abs([f.said[name] / f.was[name] - 1 for f in kept])
            if len(off):
                print(
                    f"  {name:7s} median {100 * np.median(off):5.1f} %  "
                    f"p90 {100 * np.quantile(off, 0.9):5.1f} %  n {len(off)}"
                )
    print(
        f"calibration of an hour: median {np.median(times):.2f} s, worst {max(times):.2f} s "
        f"of processor time (goal: 1 s; 1.5 s with the sweep)"
    )
    return float(np.median(times)) <= 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--cases", type=int, default=10)
    parser.add_argument("--only", default="gpu,cpu,hidden,intervals")
    parser.add_argument("--minutes", type=float, default=60.0, help="of an interval's window")
    asked = parser.parse_args()
    only = asked.only.split(",")
    good = True
    if "gpu" in only:
        good &= gpu_runs.report(SHARED)
    if "cpu" in only:
        good &= cpu_runs.report_cap(SHARED / "vllm-0.32" / "run_cap")
        good &= cpu_runs.report_main(SHARED / "vllm-0.32" / "run_main")
    if "hidden" in only:
        good &= report_hidden(asked.seed, asked.cases)
    if "intervals" in only:
        good &= intervals.report(SHARED, asked.seed, asked.cases, 60 * asked.minutes)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
