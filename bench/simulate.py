"""Speed of the batching simulator, against the plain reference in the same run.

    python bench/simulate.py [--skip-cold]

Processor seconds of this process (other jobs on the machine do not count).
"""

from __future__ import annotations

import argparse
import os
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
from driftwatch.simulate.disturbance import Disturbance  # noqa: E402
from driftwatch.simulate.engine import Engine, Observe, simulate  # noqa: E402
from driftwatch.simulate.requests import make_requests  # noqa: E402
from driftwatch.simulate.step_time import StepTime  # noqa: E402

LAW = StepTime(0.009, 6e-5, 6.5e-5, 4e-7)
COLD = """
from driftwatch.simulate.engine import *
from driftwatch.simulate.requests import make_requests
simulate(make_requests([0.0], [9], [9]), SchedulerConfiguration(8, 64),
         StepTime(0.01, 0.0, 0.0, 0.0), compiled=True)
"""


def seconds_of(work, repeat: int = 1) -> float:  # type: ignore[no-untyped-def]
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def say(what: str, seconds: float, goal: str = "") -> None:
    print(f"{what:<58} {seconds * 1e3:>10.1f} ms  {goal}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--skip-cold", action="store_true")
    options = parser.parse_args()
    arrival, prompt, generation = conversation_hour(ROOT.parent / "shared" / "data")
    hour = make_requests(arrival, prompt, generation)
    plain = SchedulerConfiguration(256, 2048, enable_prefix_caching=False, async_scheduling=False)
    if not options.skip_cold:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", COLD],
                env={**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONPATH": str(ROOT)},
                check=True,
            )
            say("cold start, wall", time.perf_counter() - start, "goal 10,000")
    simulate(hour, plain, LAW, compiled=True)
    one = seconds_of(lambda: simulate(hour, plain, LAW, compiled=True), 5)
    say("hour, one configuration, compiled", one, "goal 10")
    kernel_only(hour, plain)
    grid = [
        SchedulerConfiguration(s, b, enable_prefix_caching=False, async_scheduling=False)
        for b in (512, 1024, 2048, 4096, 8192, 16384)
        for s in (16, 64, 256, 512, 1024)
        if b >= s
    ]
    total = seconds_of(lambda: [simulate(hour, c, LAW, compiled=True) for c in grid])
    say(f"hour, {len(grid)} configurations, compiled", total, "goal 300")
    for name, c in {
        "tight blocks (preemption)": SchedulerConfiguration(256, 2048, 7001),
        "asynchronous, prefix caching, tight blocks": SchedulerConfiguration(64, 1024, 3001),
        "tiny budget": SchedulerConfiguration(32, 64, enable_prefix_caching=False),
    }.items():
        say(f"hour, {name}", seconds_of(lambda c=c: simulate(hour, c, LAW, compiled=True), 2))
    say(
        "hour, plain Python",
        seconds_of(lambda: simulate(hour, plain, LAW, compiled=False)),
        "goal 1500",
    )
    few = hour.take(slice(0, 2000))
    slow = seconds_of(lambda: run_reference(few, plain, LAW))
    fast = seconds_of(lambda: simulate(few, plain, LAW, compiled=True), 5)
    say("first 2,000 requests, reference", slow)
    say("first 2,000 requests, compiled", fast, f"{slow / fast:.0f} times faster")
    fleet_day()


def kernel_only(hour, c) -> None:  # type: ignore[no-untyped-def]
    from driftwatch.simulate.compiled import compiled_kernel
    from driftwatch.simulate.kernel_tables import pack

    engine = Engine(c, LAW)
    engine.offer(hour)
    m, f = pack(engine._tables)
    kernel = compiled_kernel()
    say("  of which the kernel", seconds_of(lambda: kernel(m, f, float("inf"))))


def fleet_day() -> None:
    rng = np.random.default_rng(0)
    count = 300_000
    day = make_requests(
        np.sort(rng.uniform(0, 86_400, count)),
        np.clip(rng.lognormal(5.5, 1.0, count).astype(int), 1, 4000),
        np.clip(rng.lognormal(4.8, 0.8, count).astype(int), 1, 2000),
    )
    law = StepTime(0.012, 3e-5, 5e-5, 1e-7)
    c = SchedulerConfiguration(128, 2048, 20001, enable_prefix_caching=False)
    observe = Observe(np.arange(30.0, 86_400.0, 30.0), (0.01, 0.025, 0.05, 0.1), (8.0, 64.0, 512.0))
    seconds = seconds_of(
        lambda: simulate(
            day, c, law, disturbance=Disturbance(jitter_sigma=0.1), observe=observe, compiled=True
        )
    )
    say("a server-day: 300,000 requests, jitter, 2,879 scrapes", seconds, "goal 500")


if __name__ == "__main__":
    main()
