"""A steady tick over synthetic fleets: text bytes in, evidence, rules and state out.

    python bench/tick.py [TARGETS ...]

Every target serves a real page of the recorded vLLM server (families that driftwatch does not read
included) with moving counters. Timed is one steady tick: one new page per target, parsed from
bytes, joined with twelve minutes of history at one scrape per 15 s, one complete minute evaluated
for every target. Fetching is not in it. The named alternative, in the same run and on the same
pages, is `prometheus_client`'s parser looped over the new pages, which only reads them.
"""

from __future__ import annotations

import math
import os
import re
import resource
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from prometheus_client.parser import text_string_to_metric_families

from driftwatch.collect.exposition import PageParser
from driftwatch.collect.schema import Collected
from driftwatch.model import Target, TargetKey
from driftwatch.service.configured import plan_of_rules
from driftwatch.service.state import State
from driftwatch.service.tick import evaluate

PAGE = Path(__file__).parents[2] / "shared/data/vllm-0.32/metrics_during_load.txt"
START = datetime(2026, 1, 5, tzinfo=UTC)
SCRAPE_SECONDS = 15
WARM_SCRAPES = 4 * 12
REPEATS = 5
_VALUE = re.compile(rb"^(vllm:\S+(?:_total|_sum|_count|_bucket)\{[^}]*\}) (\S+)$", re.M)


def page_at(template: bytes, scrape: int) -> bytes:
    """The template with every counter grown by one part in a hundred per scrape."""
    return _VALUE.sub(
        lambda m: m[1] + b" " + repr(float(m[2]) * (1 + scrape / 100)).encode(), template
    )


def collected(
    parser: PageParser,
    instances: list[str],
    targets: dict[TargetKey, Target],
    body: bytes,
    at: datetime,
) -> Collected:
    parsed = parser.parse_many((instance, at, body) for instance in instances)
    return Collected(parsed.frame, targets, parsed.problems)


def steady_ticks(count: int, template: bytes) -> tuple[list[float], float]:
    """Seconds of steady ticks, and of prometheus_client reading the same new pages."""
    plan = plan_of_rules(())
    parser = PageParser()
    instances = [f"host-{i}:8000" for i in range(count)]
    targets = {TargetKey(i, "0"): Target(TargetKey(i, "0"), {"model_name": "m"}) for i in instances}
    state = State(collected_until={"bench": START})
    for scrape in range(WARM_SCRAPES):
        at = START + timedelta(seconds=SCRAPE_SECONDS * scrape)
        body = page_at(template, scrape)
        state, _ = evaluate(
            state,
            [collected(parser, instances, targets, body, at)],
            at + timedelta(seconds=1),
            plan,
        )
    times = []
    scrape = WARM_SCRAPES
    while len(times) < REPEATS:
        at = START + timedelta(seconds=SCRAPE_SECONDS * scrape)
        body = page_at(template, scrape)
        began = time.perf_counter()
        state, outcome = evaluate(
            state,
            [collected(parser, instances, targets, body, at)],
            at + timedelta(seconds=1),
            plan,
        )
        if len(outcome.rows):  # every fourth scrape completes a minute: those are the full ticks
            assert len(outcome.rows) == count
            times.append(time.perf_counter() - began)
        scrape += 1
    text = page_at(template, scrape).decode()
    began = time.perf_counter()
    sample = max(1, min(count, 50))
    for _ in range(sample):
        for family in text_string_to_metric_families(text):
            for _sample in family.samples:
                pass
    alternative = (time.perf_counter() - began) * count / sample
    return times, alternative


def main() -> None:
    counts = [int(a) for a in sys.argv[1:]] or [10, 100, 1000]
    template = PAGE.read_bytes()
    print(
        f"{os.cpu_count()} cores, page {len(template):,} bytes, polars threads "
        f"{pl.thread_pool_size()}"
    )
    print("targets   tick median s   worst s   prometheus_client reading only s   ratio")
    medians = {}
    for count in counts:
        times, alternative = steady_ticks(count, template)
        medians[count] = statistics.median(times)
        print(
            f"{count:7,}   {medians[count]:13.3f}   {max(times):7.3f}   {alternative:32.2f}   "
            f"{alternative / medians[count]:5.1f}"
        )
    low, high = min(medians), max(medians)
    if low < high:
        exponent = math.log(medians[high] / medians[low]) / math.log(high / low)
        print(f"growth exponent {low:,} to {high:,}: {exponent:.2f}")
        if 100 in medians and high > 100:
            exponent = math.log(medians[high] / medians[100]) / math.log(high / 100)
            print(f"growth exponent 100 to {high:,}: {exponent:.2f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
