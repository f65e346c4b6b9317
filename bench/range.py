"""A range answer into a table: ours against prometheus-api-client's own MetricRangeDataFrame.

    python bench/range.py [TARGETS]

One run, the same data: one histogram of a fleet, as Prometheus writes it. (a) from the parsed
JSON to the table, (b) from the bytes to the table; the other side is MetricRangeDataFrame on the
parsed JSON, for (b) after ``json.loads``. Steady: the series of the answer before, at one time or
at four; joined: one more target than then; catching up: 240 grid times.

The goals are those of ranges: (a) is judged where a series has 240 samples, (b) in every case. At
one time an answer is all labels, and (a) is bound by the walk over its dictionaries; the service
never takes that way, it reads bytes. Needs the extra ``bench`` (pandas).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import polars as pl
from prometheus_api_client import MetricRangeDataFrame

from driftwatch.collect.prometheus.answer import Points, Scan, points
from driftwatch.collect.prometheus.numbers import numbered
from driftwatch.collect.prometheus.placement import Placements
from driftwatch.collect.prometheus.query import queries
from driftwatch.collect.prometheus.table import Cells

REPEATS = 5
PARSED_GOAL, BYTES_GOAL = 10.0, 4.0
JOB = {"job": "vllm"}
COLUMN = "ttft_seconds"
EDGES = [*(str(0.001 * 2**i) for i in range(21)), "+Inf"]
QUERY = next(query for query in queries(JOB) if COLUMN in query.columns)
START, STEP = 1_767_225_599.999, 15


def body(targets: int, times: int) -> bytes:
    """The answer for a fleet."""
    name = QUERY.metrics[0].wire_name
    result: list[dict[str, Any]] = []
    kinds = [*(("_bucket", {"le": le}) for le in EDGES), ("_sum", {}), ("_count", {})]
    for number, (part, le) in enumerate(kinds):
        top = len(EDGES) - 1 if part == "_count" else number
        for target in range(targets):
            labels = {
                "__name__": name + part,
                "engine": "0",
                "instance": f"vllm-{target}.inference:8000",
                **JOB,
                **le,
                "model_name": "meta-llama/Llama-3.1-8B-Instruct",
                "pod": f"vllm-{target}",
            }
            values = [[START + STEP * i, str(1000 * top + i)] for i in range(times)]
            result.append({"metric": labels, "values": values})
    data = {"resultType": "matrix", "result": result}
    return json.dumps({"status": "success", "data": data}, separators=(",", ":")).encode()


def table(read: Points, placements: Placements) -> pl.DataFrame:
    """The histogram's columns, a row per target and time."""
    answer = numbered([read], placements.last_series(QUERY.text))
    placement = placements.of(QUERY, answer)
    cells = Cells([placement], answer.times)
    cells.gather(placement, answer, {})
    every = np.nonzero(cells.present)[0]
    columns = {name: pl.Series(cells.values[name][every]) for name in cells.values}
    return pl.DataFrame(columns | {name: lists.of(every) for name, lists in cells.lists.items()})


def of_parsed(result: list[Any], placements: Placements) -> pl.DataFrame:
    return table(points(result, placements.last_series(QUERY.text)), placements)


def of_bytes(text: bytes, placements: Placements) -> pl.DataFrame:
    scan = Scan(placements.last_series(QUERY.text))
    scan.feed(text)
    answer: Any = scan.finish()
    return table(answer["data"]["result"], placements)


def median_seconds(work: Callable[[], object], prepare: Callable[[], object]) -> float:
    took = []
    for _ in range(REPEATS):
        prepare()
        gc.collect()
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def measure(what: str, targets: int, times: int, before: int) -> tuple[float, float]:
    """Print a line each; the two ratios. ``before``: targets of the answer before."""
    text, last = body(targets, times), body(before, 1)
    parsed = json.loads(text)["data"]["result"]
    known = Placements()

    def reset(*, parsed_before: bool) -> None:
        nonlocal known
        known = Placements()
        (of_parsed if parsed_before else of_bytes)(
            json.loads(last)["data"]["result"] if parsed_before else last,  # type: ignore[arg-type]
            known,
        )

    ours_parsed = median_seconds(
        lambda: of_parsed(parsed, known), lambda: reset(parsed_before=True)
    )
    theirs_parsed = median_seconds(lambda: MetricRangeDataFrame(parsed), lambda: None)
    ours_bytes = median_seconds(lambda: of_bytes(text, known), lambda: reset(parsed_before=False))
    theirs_bytes = median_seconds(
        lambda: MetricRangeDataFrame(json.loads(text)["data"]["result"]), lambda: None
    )
    orjson_alone = median_seconds(lambda: orjson.loads(text), lambda: None)
    made = of_bytes(text, known)
    assert made.height == targets * times
    assert made[f"{COLUMN}_count"].null_count() == 0
    ratios = theirs_parsed / ours_parsed, theirs_bytes / ours_bytes
    print(
        f"{what:>12}  {targets:6,}  {times:4}  {len(text) / 1e6:7.1f}  "
        f"{ours_parsed:8.3f}  {theirs_parsed:8.3f}  {ratios[0]:6.1f}  "
        f"{ours_bytes:8.3f}  {theirs_bytes:8.3f}  {ratios[1]:6.1f}  {orjson_alone:8.3f}"
    )
    return ratios


def main() -> int:
    asked = argparse.ArgumentParser(description="A range answer into a table.")
    asked.add_argument("targets", nargs="?", type=int, default=1000)
    targets = asked.parse_args().targets
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python "
        f"{platform.python_version()}, polars {pl.__version__}, orjson {orjson.__version__}"
    )
    print("medians in s        of parsed JSON: ours, theirs, ratio; of bytes: ours, theirs, ratio")
    print(
        "              targets times      MB                                       (orjson alone)"
    )
    few = max(10, targets // 10)
    found = [
        measure("steady", targets, 1, targets),
        measure("steady", targets, 4, targets),
        measure("joined", targets, 1, targets - 1),
        measure("catching up", few, 240, few),
    ]
    parsed, read = found[-1][0], min(ratio for _, ratio in found)
    met = parsed >= PARSED_GOAL and read >= BYTES_GOAL
    print(
        f"parsed JSON to table {parsed:.1f}x (goal {PARSED_GOAL:g}x), bytes to table {read:.1f}x "
        f"(goal {BYTES_GOAL:g}x): {'met' if met else 'MISSED'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
