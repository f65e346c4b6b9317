"""The figures of a simulated run: latencies, throughput, batch, and why requests waited."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.outcome import STATUS, Run
from driftwatch.simulate.requests import Requests

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_TIMES = ("ttft_seconds", "itl_seconds", "e2e_seconds", "queue_seconds")
_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "kv_cache", "other")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Figures of a run."""

    requests: dict[str, int]  # by how they ended
    # of each of ``_TIMES`` p50, p90, p99, mean, max in seconds and n; None where no request has it.
    # Quantiles interpolate linearly between requests; a quantile q of fewer than 1 / (1 - q)
    # requests is None.
    latency: dict[str, dict[str, float | None] | None]
    # requests, prompt tokens and generated tokens a second, from the first arrival to the last end;
    # None where that time is 0
    throughput: dict[str, float | None]
    # decode requests and tokens a step, steps, and the share of the span in steps
    batch: dict[str, float | None]
    preemptions: int  # how often a request lost its KV blocks
    # share of the time in steps in which requests waited because of each limit
    waited_busy_time_ratio: dict[str, float]


def summarize(run: Run, requests: Requests, configuration: SchedulerConfiguration) -> RunSummary:
    """The figures of a run that was recorded ``per_step``.

    A request's itl_seconds is vLLM's time per output token, (e2e - ttft) / (generated - 1); null
    for one token. ``configuration``: of the run; it shows which limit was full.
    """
    rows, steps, totals = run.requests, run.steps, run.summary
    statuses = dict(rows["status"].value_counts().iter_rows())
    gaps = pl.col("generated_tokens") - 1
    finished = rows.filter(pl.col("status") == "finished").with_columns(
        itl_seconds=pl.when(gaps > 0).then((pl.col("e2e_seconds") - pl.col("ttft_seconds")) / gaps)
    )
    first = run.arrival_seconds.min(initial=np.inf)  # inf without a request
    span = max(0.0, float(totals["end_seconds"]) - float(first))
    count = int(totals["steps"])
    decode, prefill = int(steps["decode_seqs"].sum()), int(steps["prefill_tokens"].sum())
    done = {
        "requests_per_second": finished.height,
        "prompt_tokens_per_second": int(finished["prompt_tokens"].sum()),
        "generation_tokens_per_second": int(rows["generated_tokens"].sum()),
    }
    waited = _seconds_by_limit(steps, requests, configuration)
    passed = sum(waited.values())
    return RunSummary(
        requests={name: statuses.get(name, 0) for name in STATUS.categories},
        latency={name: _distribution(finished[name]) for name in _TIMES},
        throughput={
            **{name: value / span if span > 0 else None for name, value in done.items()},
            "span_seconds": span,
        },
        batch={
            "steps": count,
            "busy_ratio": float(totals["busy_seconds"]) / span if span > 0 else None,
            "decode_seqs_per_step": decode / count if count else None,
            "tokens_per_step": (decode + prefill) / count if count else None,
        },
        preemptions=int(totals["preemptions"]),
        waited_busy_time_ratio={
            limit: waited.get(limit, 0.0) / passed if passed else 0.0 for limit in _LIMITS
        },
    )


def _seconds_by_limit(
    steps: pl.DataFrame, requests: Requests, settings: SchedulerConfiguration
) -> dict[str, float]:
    """Seconds of steps by the limit that held requests back, or ``none``."""
    cap = settings.max_num_active_seqs or settings.max_num_seqs
    tokens = pl.col("prefill_tokens") + pl.col("decode_seqs")
    rest = "kv_cache" if settings.num_gpu_blocks is not None else "other"
    if not settings.enable_chunked_prefill:
        # whole prompts wait once the shortest one does not fit into the rest of the budget
        tokens += pl.lit(int(requests.prompt_tokens.min()) - 1)
    held_back = (
        pl.when(pl.col("waiting") == 0)
        .then(pl.lit("none"))
        .when(pl.col("preempted") > 0)
        .then(pl.lit("kv_cache"))
        .when(pl.col("running") >= cap)
        .then(pl.lit("max_num_seqs"))
        .when(tokens >= settings.max_num_batched_tokens)
        .then(pl.lit("max_num_batched_tokens"))
        .otherwise(pl.lit(rest))
        .alias("held_back")
    )
    seconds = (pl.col("end_seconds") - pl.col("start_seconds")).sum()
    return dict(steps.group_by(held_back).agg(seconds).iter_rows())


def _distribution(values: pl.Series) -> dict[str, float | None] | None:
    finite = values.drop_nulls().to_numpy()
    if not len(finite):
        return None
    shares = np.quantile(finite, list(_QUANTILES.values()))
    return {
        **{
            name: float(value) if len(finite) >= round(1 / (1 - share)) else None
            for (name, share), value in zip(_QUANTILES.items(), shares, strict=True)
        },
        "mean": float(finite.mean()),
        "max": float(finite.max()),
        "n": len(finite),
    }
