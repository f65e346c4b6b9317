"""Processor time and memory of each way to read a fleet, from bytes to rules.

    python bench/reading.py [TARGETS]

Every target serves a page of the recorded vLLM server (238 series that driftwatch reads), one
scrape per 15 s. Counted is the processor time of this process, all threads, for a steady minute:
four scrapes are read and one minute is evaluated. What makes answers, pages and requests are other
processes, or not counted. Each way has a process of its own:

* ``api each scrape``: a Prometheus API's range answers, asked every 15 s.
* ``api each minute``: the same, asked once for the four scrapes.
* ``pages``: ``/metrics`` pages, parsed; fetching them is not in it.
* ``remote write``: requests of 10,000 samples over HTTP.

    python bench/reading.py 10000 --processes 4

What one of several processes that share the shards reads in a minute: all of the fleet, its part by
``namespace`` (there are 16, each with its pools), and its part by ``instance``.

Beside it VictoriaMetrics and vmagent (which passes on to it), given the same requests: processor
time from /proc.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import requests
from canned_sender import NAME
from tick import PER_MINUTE, WARM_MINUTES, memory, peak_again
from tick_sources import PAGE, SCRAPE_SECONDS, START, Json, Tables, Text, scraped_at

from driftwatch.cli.allocator import ALLOCATOR, give_memory_back
from driftwatch.clock import ManualClock
from driftwatch.collect.schema import Collected
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.stored_state import memory_of
from driftwatch.pipeline.tick import evaluate
from driftwatch.service.configuration import plan_of_rules
from driftwatch.store.minute_columns import stored_rows
from driftwatch.store.store import Store, TickRecord

WAYS = ("api each scrape", "api each minute", "pages", "remote write")
MINUTES = 4
GOAL_MS, GOAL_KB = 0.25, 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Sender:
    """The process that posts."""

    def __init__(self) -> None:
        here = Path(__file__).parent / "canned_sender.py"
        self._process = subprocess.Popen(
            [sys.executable, str(here), str(PAGE)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._line()

    def _line(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def post(self, url: str, count: int, scrape: int) -> int:
        """One scrape of so many servers; bytes that were sent."""
        assert self._process.stdin is not None
        at_ms = round(scraped_at(scrape).timestamp() * 1000)
        question = {"url": url, "count": count, "at_ms": at_ms, "scrape": scrape}
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._line()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Written:
    """Requests of a sender, received."""

    def __init__(self, count: int) -> None:
        from driftwatch.collect.remote_write.source import RemoteWriteSource

        self._count, self._sender, self._clock = count, Sender(), ManualClock(START)
        self._source = RemoteWriteSource(("127.0.0.1", 0), self._clock, selector={"job": "vllm"})
        self._url = "http://{}:{}/api/v1/write".format(*self._source.receiver.address)

    def minute(self, first: int) -> list[Collected]:
        for scrape in range(first, first + PER_MINUTE):
            self._clock.set(scraped_at(scrape) + timedelta(seconds=5))
            self._sender.post(self._url, self._count, scrape)
        return [self._source.collect(scraped_at(first), scraped_at(first + PER_MINUTE))]

    def close(self) -> None:
        self._source.close()
        self._sender.close()


class Fetched:
    """Answers of an API or pages, so many scrapes at a time; making them is not counted."""

    def __init__(self, way: Text | Json, names: list[str], at_once: int) -> None:
        self._way, self._names, self._at_once = way, names, at_once
        self.uncounted = 0.0

    def minute(self, first: int) -> list[Collected]:
        collected = []
        for scrape in range(first, first + PER_MINUTE, self._at_once):
            before = time.process_time()
            self._way.prepare(self._names, scrape, self._at_once)
            self.uncounted += time.process_time() - before
            until = scraped_at(scrape + self._at_once)
            collected.append(self._way.collect(scraped_at(scrape), until))
        return collected

    def close(self) -> None:
        self._way.close()


@dataclass
class Cost:
    """Of one way: milliseconds of processor a replica-scrape, and kB a replica."""

    reading: list[float] = field(default_factory=list)
    evaluating: list[float] = field(default_factory=list)
    committing: list[float] = field(default_factory=list)
    written_bytes: list[float] = field(default_factory=list)  # to disk, a replica-minute
    reading_kb: float = 0.0  # memory that reading alone takes, at most
    process_kb: float = 0.0  # memory of the whole process, at most


def measure(kind: str, count: int) -> Cost:
    """Minutes that are only read, then minutes with a past of 15 minutes that are evaluated."""
    names, cost = [NAME.format(i) for i in range(count)], Cost()
    gc.collect()
    base = memory("VmRSS")
    peak_again()
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "d.db") as store:
        way: Written | Fetched
        if kind == "remote write":
            way = Written(count)
        elif kind == "pages":
            way = Fetched(Text(names, Path(folder)), names, 1)
        else:
            at_once = 1 if kind == "api each scrape" else PER_MINUTE
            way = Fetched(Json(names, Path(folder)), names, at_once)
        for minute in range(2):
            collected = way.minute(minute * PER_MINUTE)
        cost.reading_kb = (peak_again() - base) * 1024 / count
        plan, state, tables = plan_of_rules(()), State(), Tables(names)
        targets = dict(collected[-1].targets)
        assert len(targets) == count
        warm = 2 * PER_MINUTE + WARM_MINUTES * PER_MINUTE
        for scrape in range(2 * PER_MINUTE, warm):
            one = Collected(tables.at(scrape), targets)
            state, _ = evaluate(state, [one], scraped_at(scrape + 1), plan)
        gc.collect()
        peak_again()
        for minute in range(MINUTES):
            first = warm + minute * PER_MINUTE
            began, uncounted = time.process_time(), getattr(way, "uncounted", 0.0)
            collected = way.minute(first)
            read = time.process_time()
            made = getattr(way, "uncounted", 0.0) - uncounted
            rows = 0
            for number, one in enumerate(collected):
                until = scraped_at(first + (number + 1) * PER_MINUTE // len(collected))
                state, outcome = evaluate(state, [one], until, plan)
                rows += len(outcome.rows)
            judged, wrote = time.process_time(), disk_bytes()
            committed(store, state, outcome)
            assert rows == count
            assert sum(one.scrapes["ok"].sum() for one in collected) == count * PER_MINUTE
            per = 1000 / (count * PER_MINUTE)
            if minute:  # the first one meets series that it has not seen for long
                cost.reading.append((read - began - made) * per)
                cost.evaluating.append((judged - read) * per)
                cost.committing.append((time.process_time() - judged) * per)
                cost.written_bytes.append((disk_bytes() - wrote) / count)
        cost.process_kb = peak_again() * 1024 / count
        way.close()
    return cost


def committed(store: Store, state: State, outcome: Outcome) -> None:
    """Write what a tick found and what the next process must know."""
    store.commit_tick(
        TickRecord(
            incidents=state.incidents.values(),
            transitions=outcome.transitions,
            scrapes=outcome.scrapes,
            since=START,
            until=state.evaluated_until or START,
            memory=memory_of(state),
            minutes=stored_rows(outcome.rows),
        )
    )


@dataclass
class Read:
    """What a process reads in a minute."""

    seconds: list[float] = field(default_factory=list)  # of processor
    questions: int = 0
    answered_bytes: int = 0
    targets: int = 0


NAMESPACES = 16


def part_of(kind: str, count: int, processes: int) -> Read:
    """Minutes that one of several processes only reads."""
    names, read = [NAME.format(i) for i in range(count)], Read()
    mine = set(names[::processes])

    def own(listed: Mapping[TargetKey, Target]) -> list[TargetKey]:
        return [key for key in listed if key.instance in mine]

    with tempfile.TemporaryDirectory() as folder:
        way = Json(names, Path(folder), None if kind == "all" else own)
        way.namespaces = NAMESPACES if kind == "namespace" else 0
        for minute in range(MINUTES):
            first = minute * PER_MINUTE
            way.prepare(names, first, PER_MINUTE)
            before, began = way.sent(), time.process_time()
            collected = way.collect(scraped_at(first), scraped_at(first + PER_MINUTE))
            if minute:  # the first one parses every label
                read.seconds.append(time.process_time() - began)
        after = way.sent()
        read.questions = after["questions"] - before["questions"]
        read.answered_bytes = after["bytes"] - before["bytes"]
        read.targets = len(collected.scrapes) // PER_MINUTE
        assert collected.scrapes["ok"].all()
        assert read.targets == (count if kind == "all" else len(mine))
        way.close()
    return read


def parts(count: int, processes: int) -> None:
    """What each way of reading a part costs a process."""
    print(f"{count:,} targets, {processes} processes, load {os.getloadavg()[0]:.1f}")
    print("read           targets  questions     MB  processor s a minute")
    for kind in ("all", "namespace", "instance"):
        command = [sys.executable, __file__, "--part", kind, str(count)]
        command += ["--processes", str(processes)]
        ran = subprocess.run(
            command, stdout=subprocess.PIPE, check=True, text=True, env={**os.environ, **ALLOCATOR}
        )
        read = Read(**json.loads(ran.stdout))
        mb, seconds = read.answered_bytes / 1e6, statistics.median(read.seconds)
        print(
            f"{kind:13}  {read.targets:7}  {read.questions:9}  {mb:5.0f}  {seconds:20.2f}",
            flush=True,
        )
    print(f"load at the end {os.getloadavg()[0]:.1f}")


def disk_bytes() -> int:
    """Bytes that this process gave to files so far."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["wchar"])


@contextmanager
def daemon(binary: str, port: int, *flags: str) -> Iterator[Callable[[], float]]:
    """A process on a port; gives its processor seconds."""
    command = [binary, f"-httpListenAddr=127.0.0.1:{port}", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def seconds() -> float:
        words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / _TICKS

    try:
        for _ in range(100):
            try:
                requests.get(f"http://127.0.0.1:{port}/metrics", timeout=1)
                break
            except requests.ConnectionError:
                time.sleep(0.1)
        yield seconds
    finally:
        process.terminate()
        process.wait()


def others(count: int) -> dict[str, float]:
    """Processor milliseconds a replica-scrape of VictoriaMetrics, alone and behind vmagent."""
    sender, per = Sender(), 1000 / (count * PER_MINUTE * MINUTES)
    costs: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        flags = (f"-storageDataPath={folder}/vm", "-retentionPeriod=100y")
        with daemon("victoria-metrics", 18428, *flags) as database:
            url = "http://127.0.0.1:18428/api/v1/write"
            target = f"-remoteWrite.url={url}", f"-remoteWrite.tmpDataPath={folder}/agent"
            for name, to in (("VictoriaMetrics", url), ("vmagent", url.replace("8428", "8429"))):
                with daemon("vmagent", 18429, *target) as agent:
                    counted = database if name == "VictoriaMetrics" else agent
                    sender.post(to, count, 0)
                    time.sleep(3)
                    before = counted()
                    for scrape in range(1, 1 + PER_MINUTE * MINUTES):
                        sender.post(to, count, scrape)
                    time.sleep(8)  # what it writes later belongs to it too
                    costs[name] = (counted() - before) * per
    sender.close()
    return costs


def main() -> int:
    parser = argparse.ArgumentParser(description="Ways to read a fleet.")
    parser.add_argument("targets", nargs="?", type=int, default=1000)
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS, help="only these")
    parser.add_argument("--processes", type=int, help="parts that so many processes read, only")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args()
    count = given.targets
    if given.part or given.one:
        give_memory_back()
    if given.part:
        print(json.dumps(vars(part_of(given.part, count, given.processes))))
        return 0
    if given.processes:
        parts(count, given.processes)
        return 0
    if given.one:
        print(json.dumps(vars(measure(given.one, count))))
        return 0
    print(f"{count:,} targets, {SCRAPE_SECONDS} s, load {os.getloadavg()[0]:.1f}")
    print("way               reading ms  evaluating ms  both ms  reading kB  process kB a replica")
    for way in given.ways:
        command = [sys.executable, __file__, "--one", way, str(count)]
        ran = subprocess.run(
            command, stdout=subprocess.PIPE, check=True, text=True, env={**os.environ, **ALLOCATOR}
        )
        cost = Cost(**json.loads(ran.stdout))
        reading, evaluating = map(statistics.median, (cost.reading, cost.evaluating))
        print(
            f"{way:16}  {reading:10.3f}  {evaluating:13.3f}  {reading + evaluating:7.3f}  "
            f"{cost.reading_kb:10.1f}  {cost.process_kb:10.1f}", flush=True,
        )  # fmt: skip
    for name, cost_ms in others(count).items():
        print(f"{name:16}  {cost_ms:10.3f}", flush=True)
    print(f"goal {GOAL_MS} ms both, {GOAL_KB:g} kB; load at the end {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
