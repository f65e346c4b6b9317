"""Days of a service by a clock of its own: does its memory grow, does its database?

    python bench/soak.py [--targets 1000] [--hours 48]

Scrapes are fed as tables, one per 15 s and server, five minutes at once; each tick is evaluated
and committed into a SQLite file as `driftwatch run` does, with its hourly forgetting, packing and
rolling up. Every hour's memory is that after a collection of garbage.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import polars as pl
from tick import PER_MINUTE, Service, as_run_does, memory
from tick_sources import Json, Tables, instances, scraped_at

from driftwatch.cli.allocator import give_memory_back
from driftwatch.collect.schema import Collected
from driftwatch.service.slow_tasks import compact, compaction_task

MINUTES = 5
RAW = timedelta(hours=1)  # the default of `retention`
# the first hours fill what looks back: scrapes, minutes, the detectors' day
SETTLED_HOURS = 26


def soak(count: int, hours: int, folder: Path) -> list[tuple[float, float]]:
    """After each hour MiB of the process and MB of the database, printed as they come."""
    names, rows = instances(count), []
    way = Json(names, folder)
    way.prepare(names, 0, 1)
    targets = dict(way.collect(scraped_at(0), scraped_at(1)).targets)
    way.close()
    tables, service, scrape = Tables(names), Service(folder), 0
    while scrape < hours * 60 * PER_MINUTE:
        until = scrape + MINUTES * PER_MINUTE
        frame = pl.concat([tables.at(n) for n in range(scrape, until)])
        outcome = service.tick(Collected(frame, targets), until)
        assert len(outcome.rows) == MINUTES * count
        scrape = until
        if scrape % (60 * PER_MINUTE) == 0:
            now = scraped_at(scrape)
            compact(service.store, compaction_task(now, now - RAW).arguments)
            gc.collect()
            size = sum(f.stat().st_size for f in folder.glob("driftwatch.db*")) / 1e6
            rows.append((memory("VmRSS"), size))
            print(f"{len(rows):5}  {rows[-1][0]:7,.0f}  {size:11,.1f}", flush=True)
    service.close()
    return rows


def main() -> int:
    """Print an hour a line, and how the settled hours grow."""
    asked = argparse.ArgumentParser(description="Days of a service by a clock of its own.")
    asked.add_argument("--targets", type=int, default=1000)
    asked.add_argument("--hours", type=int, default=48)
    asked.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = asked.parse_args()
    if not given.one:  # Polars reads its allocator's settings when it is imported
        return subprocess.run(
            [sys.executable, __file__, "--one", *sys.argv[1:]], env=as_run_does(), check=False
        ).returncode
    give_memory_back()
    print(f"{given.targets:,} targets, load {os.getloadavg()[0]:.1f}\n hour      MiB  database MB")
    with tempfile.TemporaryDirectory() as folder:
        rows = soak(given.targets, given.hours, Path(folder))
    settled = [mebibytes for mebibytes, _ in rows[SETTLED_HOURS:]]
    if len(settled) > 1:
        slope = statistics.linear_regression(range(len(settled)), settled).slope
        print(
            f"after hour {SETTLED_HOURS}: {slope:+.2f} MiB an hour, load {os.getloadavg()[0]:.1f}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
