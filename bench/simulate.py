"""Speed of the batching simulator, against the plain reference in the same run.

    python bench/simulate.py [--skip-cold]

Processor time of this process (other jobs on the machine do not count), the least of some repeats.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "simulate")]

from golden_cases import conversation_hour  # noqa: E402
from reference import run_reference  # noqa: E402

from driftwatch.simulate.configuration import SchedulerConfiguration  # noqa: E402
from driftwatch.simulate.engine import Disturbance, Observe, run_kernel, set_step_time  # noqa: E402
from driftwatch.simulate.requests import make_requests  # noqa: E402
from driftwatch.simulate.step_time import StepTime  # noqa: E402
from driftwatch.simulate.trial import Trial, simulate  # noqa: E402

LAW = StepTime(0.009, 6e-5, 6.5e-5, 4e-7)
GRID = [
    SchedulerConfiguration(seqs, tokens, enable_prefix_caching=False, async_scheduling=False)
    for tokens in (512, 1024, 2048, 4096, 8192, 16384)
    for seqs in (16, 64, 256, 512, 1024)
    if tokens >= seqs
] + [SchedulerConfiguration(128, 2048, enable_prefix_caching=False, async_scheduling=False)]
CASES = {
    "one configuration": SchedulerConfiguration(
        256, 2048, enable_prefix_caching=False, async_scheduling=False
    ),
    "seqs 16": SchedulerConfiguration(
        16, 2048, enable_prefix_caching=False, async_scheduling=False
    ),
    "asynchronous, prefix caching": SchedulerConfiguration(256, 2048, 30001),
    "tight blocks (preemption)": SchedulerConfiguration(
        256, 2048, 7001, enable_prefix_caching=False
    ),
    "prefix caching, tight blocks": SchedulerConfiguration(64, 1024, 3001),
    "tiny budget": SchedulerConfiguration(32, 64, enable_prefix_caching=False),
}
COLD = """
from driftwatch.simulate.engine import compile_kernel
compile_kernel()
"""


def seconds_of(work, repeat: int = 1) -> float:  # type: ignore[no-untyped-def]
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def say(what: str, seconds: float, goal_ms: float | None = None, more: str = "") -> None:
    goal = f"goal {goal_ms:>8,.0f}" if goal_ms is not None else ""
    print(f"{what:<50} {seconds * 1e3:>10.1f} ms  {goal:<14} {more}".rstrip(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--skip-cold", action="store_true")
    options = parser.parse_args()
    arrival, prompt, generation = conversation_hour(ROOT.parent / "shared" / "data")
    hour = make_requests(arrival, prompt, generation)
    plain = SchedulerConfiguration(256, 2048, enable_prefix_caching=False, async_scheduling=False)
    few = hour.take(slice(0, 2000))
    reference = seconds_of(lambda: run_reference(few, plain, LAW))
    if not options.skip_cold:
        cold_start()
    simulate(hour, plain, LAW)  # compiles, or loads

    def hours(name: str, repeat: int, goal: float | None = None) -> None:
        c = CASES[name]
        say(f"hour, {name}", seconds_of(lambda: simulate(hour, c, LAW), repeat), goal)

    hours("one configuration", 7, 10)
    kernel_only(hour, plain)
    ran = simulate(hour, plain, LAW)
    say("  beside it, its requests as a frame", seconds_of(lambda: ran.requests, 7))
    say(
        f"hour, {len(GRID)} configurations",
        sum(seconds_of(lambda c=c: simulate(hour, c, LAW), 3) for c in GRID),
        300,
    )
    for name in list(CASES)[1:]:
        hours(name, 2)
    fast = seconds_of(lambda: simulate(few, plain, LAW), 9)
    say("first 2,000 requests, reference of the tests", reference)
    say("first 2,000 requests", fast, None, f"{reference / fast:.0f} times faster")
    fleet_day()


def cold_start() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, goal in (("cold start: import, compile, run", 10_000), ("start, cached", None)):
            begin, spent = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-c", COLD],
                env={**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONPATH": str(ROOT)},
                check=True,
            )
            wall = time.perf_counter() - begin
            now = resource.getrusage(resource.RUSAGE_CHILDREN)
            busy = now.ru_utime + now.ru_stime - spent.ru_utime - spent.ru_stime
            say(name, busy, goal, f"wall {wall * 1e3:,.0f} ms")


def kernel_only(hour, c) -> None:  # type: ignore[no-untyped-def]
    best = float("inf")
    for _ in range(7):
        t = set_step_time(Trial(hour, c)._fresh(identify_blocks=False), LAW)
        best = min(best, seconds_of(lambda t=t: run_kernel(t, float("inf"))))
    say("  of which the kernel", best)


def fleet_day() -> None:
    rng = np.random.default_rng(0)
    count = 300_000
    day = make_requests(
        np.sort(rng.uniform(0, 86_400, count)),
        np.clip(rng.lognormal(5.5, 1.0, count).astype(int), 1, 4000),
        np.clip(rng.lognormal(4.8, 0.8, count).astype(int), 1, 2000),
    )
    step_time = StepTime(0.012, 3e-5, 5e-5, 1e-7)
    c = SchedulerConfiguration(128, 2048, 20001, enable_prefix_caching=False)
    observe = Observe(np.arange(30.0, 86_400.0, 30.0), (0.01, 0.025, 0.05, 0.1), (8.0, 64.0, 512.0))
    jitter = Disturbance(jitter_sigma=0.1)

    def run() -> None:
        ran = simulate(day, c, step_time, disturbance=jitter, observe=observe)
        ran.requests, ran.scrapes  # noqa: B018

    seconds = seconds_of(run, 2)
    say("server-day: 300,000 requests, jitter, 2,879 scrapes", seconds, 500)


if __name__ == "__main__":
    main()
