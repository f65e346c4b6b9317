"""What a replica-minute costs in fleets of growing size: processor, memory, bytes to disk.

    python bench/cost_curve.py [TARGETS ...]

The whole path of ``remote write`` (bench/reading.py): requests received, four scrapes read, a
minute evaluated and committed to SQLite. Each fleet has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from reading import Cost
from tick import PER_MINUTE

from driftwatch.cli.allocator import ALLOCATOR


def cost_of(count: int) -> Cost:
    """Of a fleet, measured in a process of its own."""
    reading = Path(__file__).parent / "reading.py"
    ran = subprocess.run(
        [sys.executable, str(reading), "--one", "remote write", str(count)],
        stdout=subprocess.PIPE, check=True, text=True, env={**os.environ, **ALLOCATOR},
    )  # fmt: skip
    return Cost(**json.loads(ran.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description="Cost of a replica-minute.")
    parser.add_argument("targets", nargs="*", type=int, default=[100, 1000, 10_000, 30_000])
    counts = sorted(parser.parse_args().targets)
    print(
        "targets  reading ms  evaluating ms  committing ms a replica-scrape  "
        "processor s a replica-minute  MiB  kB a replica  kB written a replica-minute  load"
    )
    seconds: dict[int, float] = {}
    for count in counts:
        cost = cost_of(count)
        parts = [statistics.median(one) for one in (cost.reading, cost.evaluating, cost.committing)]
        seconds[count] = sum(parts) * PER_MINUTE / 1000
        written = statistics.median(cost.written_bytes) / 1024
        print(
            f"{count:7,}  {parts[0]:10.3f}  {parts[1]:13.3f}  {parts[2]:13.3f}  "
            f"{seconds[count]:10.5f}  {cost.process_kb * count / 1024:7,.0f}  "
            f"{cost.process_kb:9.1f}  {written:9.2f}  {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    for low, high in [*pairwise(counts), (counts[0], counts[-1])]:
        of_fleet = math.log(seconds[high] * high / (seconds[low] * low)) / math.log(high / low)
        print(f"processor of a fleet ∝ targets ** {of_fleet:.2f}, {low:,} to {high:,}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
