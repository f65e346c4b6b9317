"""Parsing and tabling real pages: ours against prometheus_client's parser looped into a frame.

    python bench/parse.py [RECORDING]

Both get the same pages as bytes and end in a polars frame, in one run on one machine; each time
is the best of three. ``cold`` is ours with nothing seen before, ``warm`` a second call with a
parser that knows the series, as in a running service.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
from prometheus_client.parser import text_string_to_metric_families

from driftwatch.collect.pages.parser import PageParser

PAGES = 200
REPEATS = 3
GOAL = 10.0
RECORDING = Path(__file__).parents[2] / "shared/data/vllm-0.32/run_main/scrapes.jsonl.gz"

Page = tuple[str, datetime, bytes]


def pages(path: Path) -> list[Page]:
    """``PAGES`` scrapes of a recording, from its start again where it has fewer."""
    with gzip.open(path) as file:
        scrapes = [json.loads(line) for line in file]
    bodies = [scrape["body"].encode() for scrape in scrapes if scrape["status"] == 200]
    start = scrapes[0]["t"]
    return [
        ("host:8000", datetime.fromtimestamp(start + 5 * i, UTC), bodies[i % len(bodies)])
        for i in range(PAGES)
    ]


def theirs(given: Iterable[Page]) -> pl.DataFrame:
    """Every sample as a row (instance, time, name, labels, value)."""
    rows = [
        (instance, at, sample.name, str(sample.labels), float(sample.value))
        for instance, at, body in given
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    ]
    return pl.DataFrame(rows, schema=["instance", "time", "name", "labels", "value"], orient="row")


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> int:
    given = pages(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDING)
    size = sum(len(body) for _, _, body in given)
    print(f"{len(given)} pages, {size / 1e6:.1f} MB, {os.cpu_count()} cores, ", end="")
    print(f"Python {platform.python_version()}, polars {pl.__version__}")
    known = PageParser()
    known.parse_many(given)
    best: dict[str, float] = {}
    for _ in range(REPEATS):
        # side by side, so that a busy moment of the machine hits all three
        for name, work in (
            ("prometheus_client", lambda: theirs(given)),
            ("cold", lambda: PageParser().parse_many(given)),
            ("warm", lambda: known.parse_many(given)),
        ):
            best[name] = min(best.get(name, float("inf")), seconds(work))
    one = {
        name: min(seconds(work) for _ in range(REPEATS))
        for name, work in (
            ("cold", lambda: PageParser().parse_many(given[:1])),
            ("warm", lambda: known.parse_many(given[:1])),
        )
    }
    for name, took in best.items():
        ratio = best["prometheus_client"] / took
        print(f"{name:>18}  {took:8.4f} s  {1e3 * took / len(given):7.3f} ms a page  {ratio:6.1f}×")
    print(f"a single page: cold {1e3 * one['cold']:.1f} ms, warm {1e3 * one['warm']:.1f} ms")
    ratio = best["prometheus_client"] / best["cold"]
    print(f"goal {GOAL:g}× with nothing seen before: {'met' if ratio >= GOAL else 'MISSED'}")
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    raise SystemExit(main())
