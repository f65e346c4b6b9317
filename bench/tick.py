"""A steady tick over synthetic fleets: new bytes in, evidence, rules and state out.

    python bench/tick.py [--path text|json] [--scrapes N] [TARGETS ...]

Every target serves a real page of the recorded vLLM server with moving counters. Timed is one
steady tick that completes a minute: N new scrapes per target (1 unless told), read from bytes,
joined with its history at one scrape per 15 s, one minute evaluated for every target. Fetching
is not in it. Two paths, each beside a named alternative in the same run that only reads the same
bytes:

* ``text``: pages as the servers serve them (families that driftwatch does not read included);
  alternative: ``prometheus_client``'s parser looped over the new pages.
* ``json``: a Prometheus API's answers to all of driftwatch's queries, ``timestamp(up)`` included;
  alternative: ``json.loads`` and a loop into one polars frame of (labels, time, value).
  (``prometheus_api_client.MetricRangeDataFrame`` and ``MetricsList`` cannot be imported without
  pandas, which is not installed.)
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import re
import resource
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from canned_api import JOB, CannedApi
from prometheus_client.parser import text_string_to_metric_families

from driftwatch.collect.exposition import PageParser
from driftwatch.collect.prometheus import PrometheusSource
from driftwatch.collect.schema import Collected
from driftwatch.model import Target, TargetKey
from driftwatch.service.configured import plan_of_rules
from driftwatch.service.state import HISTORY, State
from driftwatch.service.tick import evaluate

PAGE = Path(__file__).parents[2] / "shared/data/vllm-0.32/metrics_during_load.txt"
START = datetime(2026, 1, 5, tzinfo=UTC)
SCRAPE_SECONDS = 15
WARM_SCRAPES = HISTORY // timedelta(seconds=SCRAPE_SECONDS)
REPEATS = 5
GOAL_SECONDS = 3.0
_VALUE = re.compile(rb"^(vllm:\S+(?:_total|_sum|_count|_bucket)\{[^}]*\}) (\S+)$", re.M)


def grown(value: float, scrape: int) -> float:
    """A counter grows by one part in a hundred per scrape."""
    return value * (1 + scrape / 100)


class Way(ABC):
    """How new scrapes of a fleet come in."""

    name: str
    alternative: str

    @abstractmethod
    def prepare(self, scrape: int, scrapes: int) -> None:
        """Make the bytes of ``scrapes`` scrapes, the first of them number ``scrape``."""

    @abstractmethod
    def collect(self) -> Collected:
        """Read the prepared bytes: this is timed."""

    @abstractmethod
    def read_otherwise(self) -> float:
        """Seconds of the named alternative on the prepared bytes."""


class Text(Way):
    name = "text"
    alternative = "prometheus_client reading only"

    def __init__(self, count: int, template: bytes) -> None:
        self._template = template
        self._parser = PageParser()
        self._instances = [f"host-{i}:8000" for i in range(count)]
        keys = [TargetKey(i, "0") for i in self._instances]
        self._targets: Mapping[TargetKey, Target] = {
            k: Target(k, {"model_name": "m"}) for k in keys
        }
        self._pages: list[tuple[datetime, bytes]] = []

    def prepare(self, scrape: int, scrapes: int) -> None:
        self._pages = [
            (
                START + timedelta(seconds=SCRAPE_SECONDS * n),
                _VALUE.sub(
                    lambda m, n=n: m[1] + b" " + repr(grown(float(m[2]), n)).encode(),
                    self._template,
                ),
            )
            for n in range(scrape, scrape + scrapes)
        ]

    def collect(self) -> Collected:
        parsed = self._parser.parse_many(
            (instance, at, body) for at, body in self._pages for instance in self._instances
        )
        return Collected(parsed.frame, self._targets, parsed.problems)

    def read_otherwise(self) -> float:
        sample = min(len(self._instances), 50)  # it is slow, and linear
        began = time.perf_counter()
        for _, body in self._pages:
            for _ in range(sample):
                for family in text_string_to_metric_families(body.decode()):
                    for _sample in family.samples:
                        pass
        return (time.perf_counter() - began) * len(self._instances) / sample


class Json(Way):
    name = "json"
    alternative = "json.loads and a loop into a frame"

    def __init__(self, count: int, template: bytes) -> None:
        instances = [f"host-{i}:8000" for i in range(count)]
        self._api = CannedApi(template.decode(), instances, grown)
        self._source = PrometheusSource(
            "http://canned", selector=JOB, step_seconds=SCRAPE_SECONDS, name="bench"
        )
        self._source._session._adapter = self._api  # type: ignore[assignment]
        self._since = self._until = START

    def prepare(self, scrape: int, scrapes: int) -> None:
        self._since = START + timedelta(seconds=SCRAPE_SECONDS * scrape)
        self._until = self._since + timedelta(seconds=SCRAPE_SECONDS * scrapes)
        scraped = [self._since.timestamp() + SCRAPE_SECONDS * i for i in range(scrapes)]
        grid = [at + SCRAPE_SECONDS - 0.001 for at in scraped]
        self._api.prepare(grid, scraped, scrape)

    def collect(self) -> Collected:
        return self._source.collect(self._since, self._until)

    def read_otherwise(self) -> float:
        began = time.perf_counter()
        labels: list[str] = []
        times: list[float] = []
        values: list[float] = []
        for body in self._api.bodies:
            for series in json.loads(body)["data"]["result"]:
                name = str(series["metric"])
                for at, value in series["values"]:
                    labels.append(name)
                    times.append(at)
                    values.append(float(value))
        frame = pl.DataFrame({"labels": labels, "time": times, "value": values})
        assert frame.height
        return time.perf_counter() - began


def steady_ticks(path: Way, count: int, scrapes: int) -> tuple[list[float], list[float], float]:
    """Seconds of steady ticks, their reading part, and the alternative's on the same bytes."""
    plan = plan_of_rules(())
    state = State(collected_until={"bench": START})
    ticks: list[float] = []
    reading: list[float] = []
    scrape = 0
    while len(ticks) < REPEATS:
        path.prepare(scrape, scrapes)
        scrape += scrapes
        gc.collect()
        began = time.perf_counter()
        collected = path.collect()
        read = time.perf_counter()
        until = START + timedelta(seconds=SCRAPE_SECONDS * scrape)
        state, outcome = evaluate(state, [collected], until, plan)
        ended = time.perf_counter()
        assert collected.scrapes.height == count * scrapes, collected.problems[:3]
        assert collected.scrapes["ok"].all(), collected.scrapes["reason"][0]
        if scrape > WARM_SCRAPES and len(outcome.rows):  # others complete no minute
            assert len(outcome.rows) == count
            ticks.append(ended - began)
            reading.append(read - began)
    return ticks, reading, path.read_otherwise()


def exponent(medians: Mapping[int, float], low: int, high: int) -> str:
    growth = math.log(medians[high] / medians[low]) / math.log(high / low)
    return f"growth exponent {low:,} to {high:,}: {growth:.2f}"


def measure(path: type[Text] | type[Json], counts: list[int], scrapes: int) -> float:
    """Print one path's table; the median of the largest fleet."""
    new = "one new scrape" if scrapes == 1 else f"{scrapes} new scrapes"
    print(f"\n{path.name}: {new} a target; alternative: {path.alternative}")
    print("targets   tick median s   worst s   of it reading s   alternative s   ratio")
    medians = {}
    template = PAGE.read_bytes()
    for count in counts:
        ticks, reading, alternative = steady_ticks(path(count, template), count, scrapes)
        medians[count] = statistics.median(ticks)
        print(
            f"{count:7,}   {medians[count]:13.3f}   {max(ticks):7.3f}   "
            f"{statistics.median(reading):15.3f}   {alternative:13.2f}   "
            f"{alternative / medians[count]:5.1f}"
        )
    for low, high in ((min(counts), max(counts)), (100, max(counts))):
        if low in medians and low < high:
            print(exponent(medians, low, high))
    return medians[max(counts)]


def main() -> int:
    asked = argparse.ArgumentParser(description="A steady tick over synthetic fleets.")
    asked.add_argument("targets", nargs="*", type=int, default=[10, 100, 1000])
    asked.add_argument("--path", choices=("text", "json"), help="only this one")
    asked.add_argument("--scrapes", type=int, default=1, choices=(1, 2, 4), help="new ones a tick")
    given = asked.parse_args()
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, page {PAGE.stat().st_size:,} "
        f"bytes, Python {platform.python_version()}, polars {pl.__version__}, "
        f"{pl.thread_pool_size()} threads"
    )
    paths = [p for p in (Text, Json) if given.path in (None, p.name)]
    slowest = max(measure(path, given.targets, given.scrapes) for path in paths)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory {peak:,.0f} MiB, load at the end {os.getloadavg()[0]:.1f}")
    print(f"goal {GOAL_SECONDS:g} s: {'met' if slowest <= GOAL_SECONDS else 'MISSED'}")
    return 0 if slowest <= GOAL_SECONDS else 1


if __name__ == "__main__":
    raise SystemExit(main())
