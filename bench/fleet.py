"""How fast a fleet is generated: servers × days into a compact recording, and bytes per server-day.

    python bench/fleet.py [--servers 40] [--days 14] [--jobs 2] [--seed 1] [--out FILE.json]

Traffic is ServeGen's mix with days and a weekend at a utilisation that swings over the day, DCGM
included; the goal is 40 servers × 14 days in 300 s on two cores. Nothing is read back but a day.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from driftwatch.collect.recordings.compact import CompactRecordingSource
from driftwatch.fleet.generate import generate_compact
from driftwatch.fleet.scenario.model import Scenario

GOAL_SECONDS = 300.0


def fleet(
    servers: int, days: int, rate: float, model: str = "llama-3.1-8b", gpus: int = 1
) -> Scenario:
    """A healthy fleet at so many requests per second and server."""
    return Scenario.model_validate(
        {
            "name": "bench",
            "title": "healthy fleet",
            "duration": f"{days}d",
            "scrape": {"interval": "30s"},
            "pool": {"replicas": servers, "model": model, "gpus_per_replica": gpus},
            "traffic": {
                "requests_per_second": rate * servers,
                "season": {"peak_to_trough": 3.0, "weekend_ratio": 0.6},
            },
            "truth": {},
        }
    )


def measure(made: Scenario, days: int, jobs: int, seed: int, folder: Path) -> dict[str, float]:
    """Generate and count."""
    servers = made.servers
    began, used = time.perf_counter(), _cpu_seconds()
    generate_compact(made, seed, folder, jobs=jobs)
    seconds, used = time.perf_counter() - began, _cpu_seconds() - used
    size = sum(path.stat().st_size for path in folder.iterdir())
    source = CompactRecordingSource(folder)
    start, _ = source.span()
    began = time.perf_counter()
    day = source.collect(start, start + timedelta(hours=1))
    read = time.perf_counter() - began
    usage = [
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return {
        "servers": servers,
        "days": days,
        "jobs": jobs,
        "seconds": round(seconds, 2),
        "cpu_seconds_per_server_day": round(
            used / servers / days, 3
        ),  # on a busy machine: this one
        "seconds_per_server_day": round(seconds / servers / days, 4),
        "bytes_per_server_day": round(size / servers / days),
        "rows_of_an_hour": len(day.scrapes),
        "read_an_hour_seconds": round(read, 3),
        "peak_mib_parent": round(usage[0] / 1024),
        "peak_mib_child": round(usage[1] / 1024),
    }


def _cpu_seconds() -> float:
    """Of this process and of those that have ended."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=40)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=4.0, help="requests per second and server")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--gpus", type=int, default=1, help="of a server")
    parser.add_argument("--out", type=Path)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="driftwatch-bench-") as name:
        # a short run first: compiling is not generating
        measure(fleet(1, 1, 0.5), 1, 1, said.seed, Path(name) / "warm")
        folder = Path(name) / "fleet"
        made = fleet(said.servers, said.days, said.rate, said.model, said.gpus)
        found = measure(made, said.days, said.jobs, said.seed, folder)
    whole = found["seconds_per_server_day"] * 40 * 14
    idle = found["cpu_seconds_per_server_day"] * 40 * 14 / said.jobs
    for key, value in found.items():
        print(f"{key:24} {value:,}")
    print(f"{'40 servers x 14 days':24} {whole:,.0f} s (goal {GOAL_SECONDS:.0f} s)")
    print(f"{'with idle cores':24} {idle:,.0f} s, from the processor time of {said.jobs} processes")
    if said.out is not None:
        said.out.write_text(json.dumps({"schema_version": 1, **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
