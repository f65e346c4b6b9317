"""Backtests: evidence from real databases, rule sets over kept evidence, vmalert beside them.

    python bench/backtest.py [--servers 10] [--hours 8] [--long-days 30] [--long-servers 100]

Three tables:

* evidence of a simulated fleet's history out of a real Prometheus and a real VictoriaMetrics,
  beside the same range queries read and thrown away (the "raw" seconds), and the peak memory of
  the whole history beside that of its first quarter;
* a backtest of kept evidence of many days and servers, then of a second rule set. The evidence is
  that of the fleet above, repeated: instances renamed and times shifted, a day a file;
* ``vmalert -replay`` of the raw 15 % rule over the same history, a rule of one expression.

Each measurement is a process of its own. Needs prometheus, promtool, victoria-metrics and vmalert.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import requests

from driftwatch.testing.daemon import Daemon
from driftwatch.testing.prometheus_server import PrometheusServer
from driftwatch.testing.victoria_metrics_server import VictoriaMetricsServer

START = datetime.fromisoformat("2026-11-16T00:00:00+00:00")
STEP_SECONDS = 30.0
SCENARIO = """\
name: fleet
title: a fleet for the bench
duration: {hours}h
start: {start:%Y-%m-%dT%H:%M:%SZ}
scrape: {{interval: 30s}}
pool: {{replicas: {servers}, dcgm: false, slo: {{ttft_seconds: 1.0, tpot_seconds: 0.05}}}}
traffic: {{requests_per_second: {rate}}}
truth: {{baseline: {{at: 1m, until: 2h}}}}
"""
# Tokens a second 15 % below those of an hour before.
RAW_RULE = """\
groups:
  - name: raw
    interval: 60s
    rules:
      - alert: TokensFell
        expr: |
          rate(vllm:generation_tokens_total[10m])
            < 0.85 * rate(vllm:generation_tokens_total[10m] offset 1h)
        for: 10m
"""


@dataclass
class Measured:
    """One process."""

    seconds: float
    processor_seconds: float
    peak_mib: float
    server_days: float = 0.0
    pages: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=10)
    parser.add_argument("--hours", type=int, default=8)
    parser.add_argument("--long-days", type=int, default=30)
    parser.add_argument("--long-servers", type=int, default=100)
    parser.add_argument("--history", type=Path, help="keep or find the simulated history here")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(asdict(PARTS[options.part[0]](*options.part[1:]))))
        return
    with tempfile.TemporaryDirectory(prefix="driftwatch-bench-") as name:
        work = Path(name)
        history = options.history or work / "history"
        if not (history / "data").is_dir():
            simulate(history, options.servers, options.hours)
        print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"{options.servers} servers, {options.hours} h, a scrape every {STEP_SECONDS:g} s\n")
        of_databases(history, options.hours, work)
        of_kept(history, work, options.long_days, options.long_servers)


def simulate(history: Path, servers: int, hours: int) -> None:
    """The fleet's scrapes as OpenMetrics, and as blocks of a Prometheus."""
    history.mkdir(parents=True)
    scenario = history / "fleet.yaml"
    text = SCENARIO.format(servers=servers, hours=hours, start=START, rate=3 * servers)
    scenario.write_text(text)
    for form, folder in (("openmetrics", "text"), ("compact", "compact")):
        words = ["--scenario", str(scenario), "--write", str(history / folder), "--format", form]
        run([sys.executable, "-m", "driftwatch", "demo", *words])
    blocks = ["tsdb", "create-blocks-from", "openmetrics"]
    run(["promtool", *blocks, str(history / "text" / "fleet.om"), str(history / "data")])


def run(words: Sequence[str]) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def prometheus(history: Path) -> Iterator[Daemon]:
    flags = ("--query.max-samples=500000000",)
    with PrometheusServer(blocks=history / "data", flags=flags) as server:
        yield server


@contextmanager
def victoria_metrics(history: Path) -> Iterator[Daemon]:
    with VictoriaMetricsServer(("-memory.allowedBytes=600MB",)) as server:
        with (history / "text" / "fleet.om").open(encoding="utf-8") as file:
            take_in(server.url, file)
        yield server


def take_in(url: str, lines: Iterator[str]) -> None:
    """OpenMetrics lines, whose times are seconds, into VictoriaMetrics."""
    batch: list[str] = []

    def send() -> None:
        body = "".join(batch).encode()
        requests.post(f"{url}/api/v1/import/prometheus", data=body, timeout=60).raise_for_status()
        batch.clear()

    for line in lines:
        if line.startswith("#"):
            continue
        series, _, when = line.rstrip().rpartition(" ")
        batch.append(f"{series} {round(float(when) * 1000)}\n")
        if len(batch) >= 100_000:
            send()
    send()
    requests.get(f"{url}/internal/force_flush", timeout=60).raise_for_status()


def of_databases(history: Path, hours: int, work: Path) -> None:
    heads = ("database", "raw s", "evidence s", "times raw", "processor s / server-day")
    print(" | ".join((*heads, "peak MiB, a quarter", "peak MiB, all")))
    for name, opened in (("Prometheus", prometheus), ("VictoriaMetrics", victoria_metrics)):
        with opened(history) as server:
            measured("raw", server.url, str(hours), str(history))  # warms the server up
            raw = measured("raw", server.url, str(hours), str(history))
            short, long = (
                measured("evidence", server.url, str(span), str(history), str(work / f"{name}{n}"))
                for n, span in enumerate((hours / 4, hours))
            )
            if name == "VictoriaMetrics":
                of_vmalert(server.url, hours)
        print(
            f"{name} | {raw.seconds:.1f} | {long.seconds:.1f} | {long.seconds / raw.seconds:.2f} | "
            f"{long.processor_seconds / long.server_days:.2f} | {short.peak_mib:.0f} | "
            f"{long.peak_mib:.0f}"
        )


def of_vmalert(url: str, hours: int) -> None:
    """``vmalert -replay`` of the raw rule, its alerts written back and counted."""
    vmalert = shutil.which("vmalert")
    if vmalert is None:
        print("vmalert is not installed")
        return
    with tempfile.TemporaryDirectory() as name:
        rules = Path(name) / "raw.yaml"
        rules.write_text(RAW_RULE)
        until = START + timedelta(hours=hours)
        words = [f"-rule={rules}", f"-datasource.url={url}", f"-remoteWrite.url={url}"]
        words += [f"-remoteRead.url={url}", "-replay.disableProgressBar", "-loggerLevel=ERROR"]
        words += [f"-replay.timeFrom={START:%Y-%m-%dT%H:%M:%SZ}"]
        words += [f"-replay.timeTo={until:%Y-%m-%dT%H:%M:%SZ}"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        run([vmalert, *words])
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        requests.get(f"{url}/internal/force_flush", timeout=60).raise_for_status()
        query = f'count(count_over_time(ALERTS{{alertstate="firing"}}[{hours + 1}h]))'
        params = {"query": query, "time": str(until.timestamp())}
        answer = requests.get(f"{url}/api/v1/query", params=params, timeout=60).json()
        alerts = answer["data"]["result"]
        count = alerts[0]["value"][1] if alerts else 0
    print(f"vmalert -replay, 1 rule: {seconds:.1f} s, {processor:.2f} processor s, {count} alerts")


def of_kept(history: Path, work: Path, days: int, servers: int) -> None:
    sizes = (str(history), str(work / "long"), str(days), str(servers))
    made = measured("repeat", *sizes)
    print(f"\nkept evidence of {days} days x {servers} servers, repeated in {made.seconds:.0f} s")
    print("rule set | s | processor s | peak MiB | pages")
    for name in ("shipped", "second"):
        one = measured("judge", *sizes, name)
        print(
            f"{name} | {one.seconds:.1f} | {one.processor_seconds:.1f} | {one.peak_mib:.0f} | "
            f"{one.pages}"
        )


def measured(part: str, *words: str) -> Measured:
    """A part in a process of its own."""
    command = [sys.executable, __file__, "--part", part, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


@contextmanager
def watched() -> Iterator[Measured]:
    """Seconds of this process from here on; its peak is that of all of it."""
    one = Measured(0.0, 0.0, 0.0)
    wall, processor = time.perf_counter(), time.process_time()
    yield one
    one.seconds, one.processor_seconds = time.perf_counter() - wall, time.process_time() - processor
    one.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def sources(url: str) -> list[Any]:
    from driftwatch.collect.prometheus.client import PrometheusAsker
    from driftwatch.collect.prometheus.source import PrometheusSource
    from driftwatch.collect.recordings.history import RetryingSource

    asker = PrometheusAsker(url)
    own = PrometheusSource(asker, selector={"job": ["vllm"]}, step_seconds=STEP_SECONDS)
    return [RetryingSource(own)]


def part_raw(url: str, hours: str, history: str) -> Measured:
    """The queries of driftwatch, each answer read to its end and thrown away.

    Asked for as long a time at once as evidence is, for the whole fleet.
    """
    from driftwatch.collect.prometheus.query import matchers, queries, select
    from driftwatch.pipeline.replay import LONGEST_OF_API, MOST_SCRAPES

    selector = {"job": ["vllm"]}
    up = select(("up",), matchers(selector))
    texts = [up, f"timestamp({up})", *(one.text for one in queries(selector))]
    servers = len(fleet_of(history))
    most = timedelta(seconds=MOST_SCRAPES * STEP_SECONDS / servers)
    stride, end = min(most, LONGEST_OF_API), START + timedelta(hours=float(hours))
    session = requests.Session()
    with watched() as one:
        since = START
        while since < end:
            until = min(since + stride, end)
            for text in texts:
                form = {"query": text, "start": since.timestamp(), "end": until.timestamp()}
                form["step"] = STEP_SECONDS
                with session.post(f"{url}/api/v1/query_range", data=form, stream=True) as answer:
                    answer.raise_for_status()
                    for _ in answer.iter_content(2**20):
                        pass
            since = until
    return one


def fleet_of(history: str) -> list[str]:
    from driftwatch.collect.recordings import open_recording

    recording = open_recording(Path(history) / "compact")
    first, _ = recording.span()
    targets = recording.collect(first, first + timedelta(minutes=1)).targets
    return sorted(key.instance for key in targets)


def part_evidence(url: str, hours: str, history: str, folder: str) -> Measured:
    """Evidence of the history, computed and kept."""
    from driftwatch.backtest.archive_writer import keep
    from driftwatch.service.configuration import plan_of

    plan = plan_of(Path(history) / "compact" / "driftwatch.yaml")
    span = START, START + timedelta(hours=float(hours))
    with watched() as one:
        archive = keep(sources(url), span, plan, Path(folder))
    one.server_days = sum(day.rows for day in archive.every) / 1440
    return one


def part_repeat(history: str, folder: str, days: str, servers: str) -> Measured:
    """A day of kept evidence of the fleet's recording, repeated."""
    from backtest_repeat import repeated

    with watched() as one:
        repeated(Path(history) / "compact", Path(folder), int(days), int(servers))
    return one


def part_judge(history: str, folder: str, days: str, servers: str, name: str) -> Measured:
    """The shipped rules, or a second set (every ``for`` twice as long), over kept evidence."""
    from backtest_repeat import opened, second

    from driftwatch.backtest.outcome import backtest
    from driftwatch.service.configuration import plan_of

    plan = plan_of(Path(history) / "compact" / "driftwatch.yaml")
    with watched() as one:
        archive = opened(Path(folder))
        result = backtest(archive, second(plan) if name == "second" else plan)
    one.pages = len(result.pages)
    return one


PARTS: dict[str, Callable[..., Measured]] = {
    "raw": part_raw,
    "evidence": part_evidence,
    "repeat": part_repeat,
    "judge": part_judge,
}

if __name__ == "__main__":
    main()
