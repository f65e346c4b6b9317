"""A steady tick over synthetic fleets: bytes in, evidence, rules, incidents and state out.

    python bench/tick.py [--scrapes N] [TARGETS ...]

Every target serves a real page of the recorded vLLM server with moving counters. Timed is one
steady tick that completes a minute: N new scrapes per target (1 unless told), fetched, read,
joined with its history at one scrape per 15 s, one minute evaluated for every target. A Prometheus
API's answers to all of driftwatch's queries are fetched over HTTP on the loopback from another
process (canned_api.py). Each fleet has a process of its own, so the peak memory is that fleet's.

The history before the first timed tick is fed as tables, each like those that the API brings; that
it fits is checked (no target may seem to restart). The peak counts from there on. Each tick is that
of `driftwatch run`: evaluated, committed into a SQLite file with all that the next process needs,
and days written down. One of them ends a day and a week; in one targets come and go. Then a new
process starts from the file and reads a whole minute (four scrapes).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import polars as pl
from tick_sources import PAGE, SCRAPE_SECONDS, START, Json, Tables, instances, scraped_at

from driftwatch.cli.process import ALLOCATOR, give_memory_back
from driftwatch.collect.schema import Collected
from driftwatch.pipeline.question import target_advice
from driftwatch.pipeline.roster import TickInput
from driftwatch.pipeline.state import HISTORY, Outcome
from driftwatch.service.batches import Batch, TickContext
from driftwatch.service.configuration import plan_of_rules
from driftwatch.store.store import Store

PER_MINUTE = 60 // SCRAPE_SECONDS
WARM_MINUTES = HISTORY // timedelta(minutes=1) + 1
REPEATS = 5
MIDNIGHT = START.replace(hour=0, minute=0) + timedelta(days=1)
# targets → seconds of a steady tick and MiB of the process at most, on two cores
GOALS: Mapping[int, tuple[float, float]] = {1000: (2.0, 600.0), 10_000: (10.0, 1536.0)}
GOAL_RESTART = 1.2  # of a steady tick's memory
JOINING_SHARE = 0.01


@dataclass
class Fleet:
    """What one process measured."""

    ticks: list[float] = field(default_factory=list)
    reading: list[float] = field(default_factory=list)
    peak: float = 0.0
    peak_reading: float = 0.0
    peak_evaluating: float = 0.0
    peak_joining: float = 0.0
    before: float = 0.0
    joining: float | None = None
    midnight: float | None = None
    restart: float | None = None
    peak_restart: float = 0.0
    brought: dict[str, int] = field(default_factory=dict)


def memory(what: str) -> float:
    """MiB of this process: VmRSS now, VmHWM at most."""
    status = Path("/proc/self/status").read_text()
    (found,) = re.findall(rf"^{what}:\s+(\d+) kB$", status, re.M)
    return int(found) / 1024


def peak_again() -> float:
    """MiB of this process at most since the last call; counts anew from here."""
    highest = memory("VmHWM")
    Path("/proc/self/clear_refs").write_text("5")
    return highest


def measure(count: int, scrapes: int, folder: Path) -> Fleet:
    """Everything of one fleet, in this process."""
    way = Json(instances(count), folder)
    try:
        return steady(way, count, scrapes, folder)
    finally:
        way.close()


def steady(way: Json, count: int, scrapes: int, folder: Path) -> Fleet:
    """History as tables, then real ticks over midnight, one in which targets come and go, and the
    first one of the next process.
    """
    found = Fleet()
    names = instances(count)
    joining = max(1, round(count * JOINING_SHARE))
    grown_fleet = [*names[1:], *instances(count + joining)[count:]]
    service = Service(folder)
    tables = Tables(names)
    # fed scrapes are of the same targets, labels included: others would be other servers
    way.prepare(names, 0, 1)
    targets = dict(way.collect(START, scraped_at(1)).targets)
    scrape = 0

    def fed(upto: int) -> None:
        """Scrapes that were fed as tables."""
        nonlocal scrape
        for n in range(scrape, upto):
            service.tick(Collected(tables.at(n), targets), n + 1)
        scrape = upto

    def ticked(names: Sequence[str]) -> tuple[Outcome, float, float]:
        """One real tick that completes a minute; its seconds, and those of reading."""
        nonlocal scrape, targets
        fed(scrape + PER_MINUTE - scrapes)
        found.brought = way.prepare(names, scrape, scrapes)
        since, scrape = scraped_at(scrape), scrape + scrapes
        gc.collect()
        peak_again()
        began = time.perf_counter()
        collected = way.collect(since, scraped_at(scrape))
        read = time.perf_counter()
        found.peak_reading = max(found.peak_reading, peak_again())
        outcome = service.tick(collected, scrape)
        ended = time.perf_counter()
        found.peak_evaluating = max(found.peak_evaluating, peak_again())
        assert collected.scrapes.height == len(names) * scrapes, collected.problems[:3]
        assert collected.scrapes["ok"].all(), collected.scrapes["reason"].drop_nulls()[0]
        targets = dict(collected.targets)
        return outcome, ended - began, read - began

    fed(PER_MINUTE * WARM_MINUTES)
    gc.collect()
    found.before = memory("VmRSS")
    peak_again()
    for n in range(REPEATS + 1):
        outcome, seconds, reading = ticked(names)
        assert len(outcome.rows) == count
        assert not outcome.rows["restarted"].any()
        assert outcome.rows["effective_batch_size"].null_count() == 0
        if n:  # the first one meets every series for the first time
            found.ticks.append(seconds)
            found.reading.append(reading)
            if outcome.rows["end"].max() == MIDNIGHT:
                found.midnight = seconds
    steady_peaks = found.peak_reading, found.peak_evaluating
    outcome, found.joining, _ = ticked(grown_fleet)
    found.peak_joining = max(found.peak_reading, found.peak_evaluating)
    found.peak_reading, found.peak_evaluating = steady_peaks
    assert joining <= len(outcome.rows) - count + 1 <= joining + 1
    found.peak = max(*steady_peaks, found.peak_joining)
    service.close()
    found.restart, found.peak_restart = restarted(folder, scrape, count, joining)
    return found


class Service:
    """What `driftwatch run` has between its sources and its receivers, by a clock of its own."""

    def __init__(self, folder: Path) -> None:
        plan = plan_of_rules(())
        self.store = Store.open(folder / "driftwatch.db")
        self._batch = Batch(self.store, START)
        self._context = TickContext(plan, (), target_advice)

    def tick(self, collected: Collected, scrapes: int) -> Outcome:
        """Evaluate and commit what was brought, up to so many scrapes after the start."""
        at = scraped_at(scrapes)
        given = TickInput({"bench": collected}, at, {"bench": at})
        outcome = self._batch.tick(given, at, self._context).outcome
        return outcome

    def close(self) -> None:
        """Let go of the database."""
        self.store.close()


def restarted(folder: Path, scrape: int, count: int, joining: int) -> tuple[float, float]:
    """Seconds from a new process's start to its first tick's commit, a minute later; peak MiB."""
    command = [sys.executable, __file__, "--again", str(folder), str(scrape), str(joining)]
    told = subprocess.run(
        [*command, str(count)], stdout=subprocess.PIPE, check=True, text=True, env=as_run_does()
    ).stdout
    seconds, peak = json.loads(told)
    return seconds, peak


def first_tick(folder: Path, scrape: int, count: int, joining: int) -> tuple[float, float]:
    """The first tick of this process, of the minute after what a process left in the folder."""
    names = [*instances(count)[1:], *instances(count + joining)[count:]]
    imported = time.process_time()
    with tempfile.TemporaryDirectory() as answers:
        way = Json(names, Path(answers))
        way.prepare(names, scrape, PER_MINUTE)
        peak_again()
        began = time.perf_counter()
        service = Service(folder)
        until = scrape + PER_MINUTE
        outcome = service.tick(way.collect(scraped_at(scrape), scraped_at(until)), until)
        seconds = time.perf_counter() - began + imported
        way.close()
    assert len(names) <= len(outcome.rows) <= len(names) + 1  # who left is told of for minutes
    assert not outcome.rows["restarted"].any()
    service.close()
    return seconds, peak_again()


def as_run_does() -> dict[str, str]:
    """The environment with the allocator of `driftwatch run`; Polars reads it when imported."""
    return {**os.environ, **ALLOCATOR}


def in_a_process(count: int, scrapes: int) -> Fleet:
    """What :func:`measure` finds in a fresh process."""
    command = [sys.executable, __file__, "--one", "--scrapes", str(scrapes), str(count)]
    told = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, text=True, env=as_run_does()
    ).stdout
    return Fleet(**json.loads(told))


def report(counts: Sequence[int], scrapes: int) -> list[str]:
    """Print the table; the goals that it missed."""
    print(f"\nnew scrapes a target: {scrapes}")
    print(
        "targets  median s  worst s  reading s  joining s  midnight s  restart s  MB read  "
        "MiB before  peak reading  peak evaluating  peak joining  peak restart"
    )
    missed: list[str] = []
    for count in counts:
        of = in_a_process(count, scrapes)
        median = statistics.median(of.ticks)
        print(
            f"{count:7,}  {median:8.3f}  {max(of.ticks):7.3f}  {statistics.median(of.reading):9.3f}"
            f"  {of.joining or 0.0:9.3f}  {of.midnight or 0.0:10.3f}  {of.restart or 0.0:9.3f}"
            f"  {of.brought['bytes'] / 1e6:7.1f}  {of.before:10,.0f}  {of.peak_reading:12,.0f}"
            f"  {of.peak_evaluating:15,.0f}  {of.peak_joining:12,.0f}  {of.peak_restart:12,.0f}",
            flush=True,
        )
        seconds, mebibytes = GOALS.get(count, (math.inf, math.inf))
        if median > seconds:
            missed.append(f"{count:,} targets: {median:.2f} s, goal {seconds:g} s")
        if of.peak > mebibytes:
            missed.append(f"{count:,} targets: {of.peak:,.0f} MiB, goal {mebibytes:,.0f}")
        if of.peak_restart > GOAL_RESTART * max(of.peak_reading, of.peak_evaluating):
            missed.append(f"{count:,} targets: restart {of.peak_restart:,.0f} MiB")
    return missed


def main() -> int:
    asked = argparse.ArgumentParser(description="A steady tick over synthetic fleets.")
    asked.add_argument("targets", nargs="*", type=int, default=[100, 1000, 10_000])
    asked.add_argument("--scrapes", type=int, default=1, choices=(1, 2, 4), help="new ones a tick")
    asked.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked.add_argument("--again", nargs=3, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.again:
        give_memory_back()
        folder, scrape, joining = given.again
        print(json.dumps(first_tick(Path(folder), int(scrape), given.targets[0], int(joining))))
        return 0
    if given.one:
        give_memory_back()
        with tempfile.TemporaryDirectory() as folder:
            found = measure(given.targets[0], given.scrapes, Path(folder))
        print(json.dumps(vars(found)))
        return 0
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, page {PAGE.stat().st_size:,} "
        f"bytes, Python {platform.python_version()}, polars {pl.__version__}, "
        f"{pl.thread_pool_size()} threads"
    )
    missed = report(sorted(given.targets), given.scrapes)
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    print("goals met" if not missed else "\n".join(f"MISSED: {m}" for m in missed))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
