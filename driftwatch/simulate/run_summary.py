"""One simulated run in figures: latencies, throughput, batch, and what made requests wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from driftwatch.simulate.configuration import SchedulerConfiguration

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
TIMES = ("ttft_seconds", "itl_seconds", "e2e_seconds", "queue_seconds")
STATUSES = ("finished", "rejected", "cancelled", "timed_out", "unfinished")
LIMITS = ("max_num_seqs", "max_num_batched_tokens", "kv_cache", "other")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Figures of a run.

    Attributes:
        statuses: requests by how they ended.
        latency: for each of ``TIMES`` p50, p90, p99, mean, max in seconds and n; None where no
            request has it. Quantiles interpolate linearly between requests.
        throughput: requests, prompt tokens and generated tokens a second, from the first arrival
            to the last end; None where that is no time.
        batch: decode requests and tokens a step, steps, and the share of the span in steps.
        preemptions: how often a request lost its KV blocks.
        waited: share of the time in steps in which requests waited because of each limit; None
            where the steps were not kept.
    """

    statuses: dict[str, int]
    latency: dict[str, dict[str, float] | None]
    throughput: dict[str, float | None]
    batch: dict[str, float | None]
    preemptions: int
    waited: dict[str, float] | None

    def as_json(self) -> dict[str, Any]:
        """The same, with units in the names."""
        return {
            "requests": self.statuses,
            "latency": self.latency,
            "throughput": self.throughput,
            "batch": self.batch,
            "preemptions": self.preemptions,
            "waited_busy_time_ratio": self.waited,
        }


def with_itl(requests: pl.DataFrame) -> pl.DataFrame:
    """``Outcome.requests`` with ``itl_seconds``: a request's mean time between two tokens.

    The same as vLLM's time per output token: (e2e - ttft) / (generated - 1); null for one token.
    """
    gaps = pl.col("generated_tokens") - 1
    return requests.with_columns(
        pl.when((pl.col("status") == "finished") & (gaps > 0))
        .then((pl.col("e2e_seconds") - pl.col("ttft_seconds")) / gaps)
        .alias("itl_seconds")
    )


def summarise(
    requests: pl.DataFrame,
    steps: pl.DataFrame | None,
    totals: dict[str, float | int],
    configuration: SchedulerConfiguration,
) -> RunSummary:
    """Figures of one run.

    Args:
        requests: ``Outcome.requests`` with ``itl_seconds``.
        steps: ``Outcome.steps``, if they were kept.
        totals: ``Outcome.summary``.
        configuration: what ran, to tell which limit binds.
    """
    counted = dict(requests["status"].value_counts().iter_rows())
    statuses = {name: int(counted.get(name, 0)) for name in STATUSES}
    first = requests["arrival_seconds"].min()
    end = float(totals["end_seconds"])
    span = end - first if isinstance(first, float) else 0.0
    finished = requests.filter(pl.col("status") == "finished")
    done = {
        "requests_per_second": finished.height,
        "prompt_tokens_per_second": int(finished["prompt_tokens"].sum()),
        "generation_tokens_per_second": int(requests["generated_tokens"].sum()),
    }
    return RunSummary(
        statuses=statuses,
        latency={name: _distribution(finished[name]) for name in TIMES},
        throughput={
            **{name: value / span if span > 0 else None for name, value in done.items()},
            "span_seconds": span,
        },
        batch=_batch(steps, totals, span),
        preemptions=int(totals["preemptions"]),
        waited=None if steps is None else _waited(steps, configuration),
    )


def _distribution(values: pl.Series) -> dict[str, float] | None:
    found = values.drop_nulls().to_numpy()
    if not len(found):
        return None
    shares = np.quantile(found, list(QUANTILES.values()))
    return {
        **dict(zip(QUANTILES, map(float, shares), strict=True)),
        "mean": float(found.mean()),
        "max": float(found.max()),
        "n": len(found),
    }


def _batch(
    steps: pl.DataFrame | None, totals: dict[str, float | int], span: float
) -> dict[str, float | None]:
    count = int(totals["steps"])
    found: dict[str, float | None] = {
        "steps": count,
        "busy_ratio": float(totals["busy_seconds"]) / span if span > 0 else None,
        "decode_seqs_per_step": None,
        "tokens_per_step": None,
    }
    if steps is not None and count:
        decode, prefill = int(steps["decode_seqs"].sum()), int(steps["prefill_tokens"].sum())
        found["decode_seqs_per_step"] = decode / count
        found["tokens_per_step"] = (decode + prefill) / count
    return found


def _waited(steps: pl.DataFrame, configuration: SchedulerConfiguration) -> dict[str, float]:
    """Of the time in steps, how much passed while requests waited, by what held them back.

    In the scheduler's own order: the cap on running requests ends admission first, then a
    preemption, then the spent token budget; who waits in spite of a free place and budget waits
    for KV blocks (or, where these cannot bind, for something else: an adapter, a whole prompt).
    """
    cap = configuration.max_num_active_seqs or configuration.max_num_seqs
    waits = pl.col("waiting") > 0
    tokens = pl.col("prefill_tokens") + pl.col("decode_seqs")
    rest = "other" if configuration.num_gpu_blocks is None else "kv_cache"
    whole = "max_num_batched_tokens" if not configuration.enable_chunked_prefill else rest
    held_back = (
        pl.when(~waits)
        .then(pl.lit("none"))
        .when(pl.col("preempted") > 0)
        .then(pl.lit("kv_cache"))
        .when(pl.col("running") >= cap)
        .then(pl.lit("max_num_seqs"))
        .when(tokens >= configuration.max_num_batched_tokens)
        .then(pl.lit("max_num_batched_tokens"))
        .otherwise(pl.lit(whole))
        .alias("held_back")
    )
    seconds = (pl.col("end_seconds") - pl.col("start_seconds")).sum()
    by_limit = dict(steps.group_by(held_back).agg(seconds).iter_rows())
    total = sum(by_limit.values())
    return {limit: by_limit.get(limit, 0.0) / total if total else 0.0 for limit in LIMITS}
