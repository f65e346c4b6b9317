"""What distances between distributions and the detectors with a past cost.

    python bench/detect.py [--servers N] [--minutes N] [--only scores|scipy|stage]

* ``scores``: one minute of N servers x 8 histograms x 4 references: Jensen-Shannon and Wasserstein
  distance, ratio of means, and the score against each one's own scale: what an alarm needs. Beside
  it all that evidence rows carry (PSI, KS, chi-square with p and V, bounds, the words).
* ``scipy``: ``ks_2samp`` of two samples of 1,000 lengths, in a loop, in the same process: the
  fastest of some loops of a hundred calls, scaled to as many as there are pairs. Its default
  method is exact at this size; the asymptotic one is timed too.
* ``stage``: :func:`driftwatch.detect.stage.detect`, minute by minute, for N targets in pools of
  ten. Their minutes are those of the recorded run_slow, each target from its own one on. The
  first ones are folded in at once, then each minute is timed; a day ends among them.

Scores and scipy run in one thread, and what is told of them is that thread's CPU time. Counts are
drawn (seed fixed) on vLLM's own bucket edges from log-normal lengths and times.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
from scipy import stats

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.distributions import js_and_w1, moved
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.stage import Memory, detect
from driftwatch.diagnose.evidence_table import evidence_table, minute_windows
from driftwatch.signals.minutes import MINUTE_SCHEMA, minutes
from driftwatch.signals.rows import SERVING_SCHEMA
from driftwatch.simulate import vllm_buckets

RUN_SLOW = Path(__file__).parents[2] / "shared/data/vllm-0.32/run_slow/scrapes.jsonl.gz"
REFERENCES = 4
LOOPED = 100
SAMPLE = 1000
Floats = np.ndarray

# signal → upper edges and a typical value, seconds or tokens
SIGNALS: dict[str, tuple[tuple[float, ...], float]] = {
    "prompt_tokens": (vllm_buckets.request_tokens(32_768), 500.0),
    "generation_tokens": (vllm_buckets.request_tokens(32_768), 200.0),
    "iteration_tokens": (vllm_buckets.ITERATION_TOKENS, 300.0),
    "ttft_seconds": (vllm_buckets.TIME_TO_FIRST_TOKEN_SECONDS, 0.3),
    "itl_seconds": (vllm_buckets.INTER_TOKEN_LATENCY_SECONDS, 0.03),
    "tpot_seconds": (vllm_buckets.INTER_TOKEN_LATENCY_SECONDS, 0.03),
    "e2e_seconds": (vllm_buckets.REQUEST_LATENCY_SECONDS, 6.0),
    "queue_seconds": (vllm_buckets.REQUEST_LATENCY_SECONDS, 0.5),
}


def drawn(
    rng: np.random.Generator, servers: int, edges: Floats, typical: float, requests: float
) -> tuple[Floats, Floats]:
    """Counts by cell [servers, k] and the sums of the values, of about so many requests each."""
    cells = np.log(np.append(edges[:-1], edges[-2] * 2))
    centre = math.log(typical) + rng.normal(0, 0.2, (servers, 1))
    cdf = stats.norm.cdf(cells[None, :], centre, 1.0)
    shares = np.diff(cdf, axis=1, prepend=0.0)
    counts = rng.poisson(shares * requests * rng.uniform(0.3, 3.0, (servers, 1))).astype(float)
    return counts, counts.sum(axis=1) * np.exp(centre[:, 0] + 0.5)


def best(work: Callable[[], object], times: int = 3) -> float:
    """Seconds of CPU of the fastest of some runs: what else runs on the machine counts little."""
    took = []
    for _ in range(times):
        started = time.process_time()
        work()
        took.append(time.process_time() - started)
    return min(took)


def time_scores(servers: int) -> float:
    """Print what a minute's distances cost; seconds of what the scores need."""
    rng = np.random.default_rng(0)
    jobs = []
    for edges, typical in SIGNALS.values():
        upper = np.array([*edges, np.inf])
        own, own_sums = drawn(rng, servers, upper, typical, 600)
        for _ in range(REFERENCES):
            other, other_sums = drawn(rng, servers, upper, typical, 20_000)
            jobs.append((upper, own, own_sums, other, other_sums))
    usual = rng.uniform(0.05, 0.2, servers)

    def scores() -> int:
        alarms = 0
        for edges, own, own_sums, other, other_sums in jobs:
            js, w1 = js_and_w1(own, other, edges)
            means = np.abs(np.log(own_sums / own.sum(axis=1) / (other_sums / other.sum(axis=1))))
            large = (w1 >= 1.15) | (means >= math.log(1.15))
            alarms += int((((js / usual) > 1.3) & large).sum())
        return alarms

    def everything() -> None:
        for edges, own, _, other, _ in jobs:
            moved(own, other, edges)

    pairs = servers * len(SIGNALS) * REFERENCES
    needed = best(scores, 5)
    print(
        f"scores  {servers:,} servers x {len(SIGNALS)} histograms x {REFERENCES} references: "
        f"{needed:.2f} s of one core ({1e6 * needed / pairs:.2f} us each; goal 2 s for 10,000)"
    )
    rest = best(everything, 1)
    print(f"        moved mass of the same: {rest:.2f} s more")
    return needed


def time_scipy(servers: int, needed: float) -> None:
    """Print what a loop of ks_2samp would take, from some hundreds of calls."""
    rng = np.random.default_rng(0)
    pairs = servers * len(SIGNALS) * REFERENCES
    for method in ("auto", "asymp"):
        samples = [
            (rng.lognormal(6, 1, SAMPLE), rng.lognormal(6.05, 1, SAMPLE)) for _ in range(LOOPED)
        ]

        def loop(samples: list[tuple[Floats, Floats]] = samples, method: str = method) -> None:
            for first, second in samples:
                stats.ks_2samp(first, second, method=method)

        each = best(loop, 5) / LOOPED
        print(
            f"scipy   ks_2samp, n = {SAMPLE:,}, method {method}: {1e6 * each:,.0f} us a call, "
            f"{each * pairs:,.0f} s for {pairs:,}: {each * pairs / needed:,.0f} times the scores"
            f" ({LOOPED} calls a loop; goal 1,000)"
        )


def recorded_minutes() -> pl.DataFrame:
    """The minutes of run_slow, one target."""
    source = RecordingSource(RUN_SLOW)
    first, last = source.span()
    scrapes = source.collect(first, last).scrapes
    serving = pl.DataFrame(
        [
            {"instance": i, "engine": e, "pool": "p", "max_num_seqs_inferred": False}
            | {"max_num_seqs": 64.0, "max_num_batched_tokens": 1024.0, "gpus_per_replica": 1.0}
            for i, e in scrapes.select("instance", "engine").unique().rows()
        ],
        schema=SERVING_SCHEMA,
    )
    grid = minute_windows(
        serving, first.replace(second=0, microsecond=0), last.replace(second=0, microsecond=0)
    )
    rows = evidence_table(scrapes, grid, kind="chained", cut=False, serving=serving).rows
    return minutes(rows).filter(pl.col("scrapes") > 0)


def fleet_minutes(one: pl.DataFrame, targets: int, span: int, start: datetime) -> pl.DataFrame:
    """``span`` minutes of every target from ``start`` on, by instance, engine and end."""
    who = pl.DataFrame({"target": range(targets)}).with_columns(
        instance=pl.format("host-{}:8000", pl.col("target").cast(pl.String).str.zfill(5)),
        pool=pl.format("pool-{}", pl.col("target") // 10),
    )
    when = pl.DataFrame({"minute": range(span)})
    grid = who.join(when, how="cross").with_columns(
        row=((pl.col("target") * 7 + pl.col("minute")) % one.height).cast(pl.UInt32)
    )
    found = one.drop("instance", "pool", "end").with_row_index("row")
    return (
        grid.join(found, on="row", how="left", maintain_order="left")
        .with_columns(end=(pl.lit(start) + pl.duration(minutes=pl.col("minute"))))
        .select(pl.col(name).cast(dtype) for name, dtype in MINUTE_SCHEMA.items())
    )


def time_stage(targets: int, timed: int) -> None:
    """Print what one minute of the detectors costs, with memory warm."""
    warm = 20
    # a day, and so an hour, ends with the third of the timed minutes
    start = datetime(2026, 11, 22, tzinfo=UTC) - timedelta(minutes=warm + 2)
    history = fleet_minutes(recorded_minutes(), targets, warm + timed, start)
    settings = DetectSettings(accepts_proposals=True)
    border = start + timedelta(minutes=warm)
    started = time.perf_counter()
    _, memory = detect(history.filter(pl.col("end") < border), Memory(), Baselines(), settings)
    spent = time.perf_counter() - started
    print(f"stage   {warm} minutes of {targets:,} targets at once: {spent:.1f} s")
    took, cpu = [], []
    for i in range(timed):
        minute = history.filter(pl.col("end") == border + timedelta(minutes=i))
        started, busy = time.perf_counter(), time.process_time()
        _, memory = detect(minute, memory, Baselines(), settings)
        took.append(time.perf_counter() - started)
        cpu.append(time.process_time() - busy)
    print(
        f"stage   a minute of {targets:,} targets: median {statistics.median(took):.2f} s, most "
        f"{max(took):.2f} s over {timed}, midnight among them (goal 1.5 s for 10,000): "
        f"{', '.join(f'{seconds:.2f}' for seconds in took)}"
    )
    print(f"        of CPU, all threads: {', '.join(f'{seconds:.2f}' for seconds in cpu)} s")
    for name, frame in memory.frames():
        size = frame.estimated_size()
        print(
            f"        memory {name}: {size / targets:,.0f} bytes a target ({frame.height:,} rows)"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"        peak {peak:,.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=10_000)
    parser.add_argument("--minutes", type=int, default=5, help="minutes of the stage to time")
    parser.add_argument("--only", choices=("scores", "scipy", "stage"))
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}")
    if arguments.only in (None, "scores", "scipy"):
        needed = time_scores(arguments.servers)
        if arguments.only != "scores":
            time_scipy(arguments.servers, needed)
    if arguments.only in (None, "stage"):
        time_stage(arguments.servers, arguments.minutes)


if __name__ == "__main__":
    main()
