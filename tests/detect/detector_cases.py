"""Minutes of a made pool whose engines keep to a step-time model, for detectors' tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.reference import no_reference
from driftwatch.detect.references import References, changes_of
from driftwatch.pipeline.detection import Detection, detect
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.store import Store, TickRecord

START = datetime(2026, 3, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
STEP = (0.012, 2e-4, 1e-8, 4e-5)  # seconds: a pass, a request, a KV token, a prefill token
EDGES = [1.0, 10.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, float("inf")]


def at(minute: float) -> datetime:
    """The end of the minute of this number, from 1 on."""
    return START + minute * MINUTE


def minutes_of(
    count: int,
    servers: Sequence[str] = ("a:8000", "b:8000", "c:8000"),
    *,
    seed: int = 0,
    slow: Mapping[str, Sequence[tuple[int, int, float]]] | None = None,
    prompts: Sequence[tuple[int, int, float]] = (),
    pool: str = "chat",
) -> pl.DataFrame:
    """Minutes (MINUTE_SCHEMA) by instance and end.

    ``slow``: server → (first, last minute, factor of the step time); ``prompts``: (first, last
    minute, factor of the mean prompt).
    """
    rng = np.random.default_rng(seed)
    # the load of a pool: a day's wave and a wander of two hours
    t = np.arange(1, count + 1)
    wander = np.convolve(rng.normal(size=count + 240), np.ones(240) / 240, "valid")[:count]
    rate = 3.0 * np.exp(0.5 * np.sin(2 * np.pi * t / 720) + 4.0 * wander)
    prompt = np.full(count, 300.0)
    for first, last, factor in prompts:
        prompt[first - 1 : last] *= factor
    frames = []
    for name in servers:
        own = rate * np.exp(rng.normal(0, 0.1, count))
        requests = np.maximum(rng.poisson(own * 60), 1)
        factor = np.exp(rng.normal(0, 0.015, count))
        for first, last, slower in (slow or {}).get(name, ()):
            factor[first - 1 : last] *= slower
        answers = 200.0
        itl = np.full(count, 0.02)
        for _ in range(50):  # Little's law: the batch is what the step time makes of the rate
            batch = own * answers * itl
            passes = 1.0 / itl
            prefill = own * prompt / passes
            itl = factor * (
                STEP[0] + STEP[1] * batch + STEP[2] * batch * (prompt + 100) + STEP[3] * prefill
            )
        tokens = requests * (answers - 1.0)
        of_buckets = np.searchsorted(EDGES, prompt)
        frames.append(
            pl.DataFrame(
                {
                    "instance": [name] * count,
                    "engine": ["0"] * count,
                    "pool": [pool] * count,
                    "end": [at(k) for k in t],
                    "scrapes": np.full(count, 4.0),
                    "duration_seconds": np.full(count, 60.0),
                    "forward_passes": 60.0 / itl,
                    "itl_seconds_sum": tokens * itl,
                    "itl_seconds_count": tokens,
                    "ttft_seconds_sum": requests * itl * 2,
                    "ttft_seconds_count": requests * 1.0,
                    "queue_seconds_sum": requests * 0.001,
                    "queue_seconds_count": requests * 1.0,
                    "prompt_tokens_sum": requests * prompt,
                    "prompt_tokens_count": requests * 1.0,
                    "generation_tokens_sum": requests * answers,
                    "generation_tokens_count": requests * 1.0,
                    "prompt_tokens_total": requests * prompt,
                    "generation_tokens_total": requests * answers,
                    "finished_requests_total": requests * 1.0,
                    "preemptions_total": np.zeros(count),
                    "running_requests": batch,
                    "waiting_requests": np.zeros(count),
                    "kv_cache_usage_ratio": batch * (prompt + 100) / 400_000,
                    "kv_cache_tokens": np.full(count, 400_000.0),
                    "restarted": [False] * count,
                    "prompt_tokens_buckets": [
                        [0.0] * k + [float(n)] * (len(EDGES) - k)
                        for k, n in zip(of_buckets, requests, strict=True)
                    ],
                    "prompt_tokens_edges": [EDGES] * count,
                }
            )
        )
    rows = pl.concat(frames)
    missing = {
        name: pl.lit(None, dtype) for name, dtype in MINUTE_SCHEMA.items() if name not in rows
    }
    return rows.with_columns(**missing).select(
        pl.col(name).cast(dtype) for name, dtype in MINUTE_SCHEMA.items()
    )


def play(
    minutes: pl.DataFrame,
    *,
    cuts: Sequence[datetime] = (),
    baselines: Baselines | None = None,
    reference: pl.DataFrame | None = None,
    accepts: bool = True,
    between: Callable[[Detection, datetime], Detection] = lambda detection, _: detection,
    store: Store | None = None,
) -> tuple[pl.DataFrame, Detection]:
    """The columns beside instance and end, and what detectors go on with after the last minute.

    ``cuts``: ends of minutes after which a tick ends; ``between``: what becomes of the detectors'
    state then; ``accepts``: take what a pool has learnt as its baseline.
    """
    if store is None:
        with Store.in_memory() as memory:
            return play(
                minutes, cuts=cuts, baselines=baselines, reference=reference, accepts=accepts,
                between=between, store=memory,
            )  # fmt: skip
    detection, parts = Detection(), []
    ends = minutes["end"].unique().sort()
    now, last = ends[0] - MINUTE, ends[-1]
    while now < last:
        until = min([last, *(cut for cut in cuts if cut > now)])
        own = minutes.filter((pl.col("end") > now) & (pl.col("end") <= until))
        columns, detection = detect(
            *(detection, own, (now, until), baselines or Baselines()),
            no_reference() if reference is None else reference,
            store,
            accepts=accepts,
        )
        parts.append(own.hstack(columns))
        now = until
        _commit(store, parts[-1], detection)
        if now in cuts:
            detection = between(detection, now)
    return pl.concat(parts).sort("instance", "end"), detection


def _commit(store: Store, rows: pl.DataFrame, detection: Detection) -> None:
    stored = rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in STORED_SCHEMA.items()
    )
    end = rows["end"].max()
    assert isinstance(end, datetime)
    before = References().with_newer(store.references())
    learnt, gone = changes_of(before, detection.references)
    store.commit_tick(
        TickRecord(until=end, minutes=stored, references=learnt, references_gone=gone)
    )


def slow_spans(
    rows: pl.DataFrame, column: str = "slower_at_equal_load"
) -> dict[str, tuple[int, int]]:
    """Server → number of its first and last slow minute."""
    slow = rows.filter(pl.col(column))
    number = (pl.col("end") - START).dt.total_minutes()
    spans = slow.group_by("instance").agg(first=number.min(), last=number.max())
    return {instance: (first, last) for instance, first, last in spans.iter_rows()}
