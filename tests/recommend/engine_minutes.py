"""Minutes of a simulated engine whose step-time model is known, and minutes by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from driftwatch.fleet.server import TIME_TO_FIRST_TOKEN_SECONDS, request_tokens
from driftwatch.model import Serving, Setting
from driftwatch.recommend.advice import Question
from driftwatch.recommend.server import Server
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Observe
from driftwatch.simulate.hardware import gpu, model
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.roofline import roofline
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Trial

START = datetime(2026, 11, 18, 3, tzinfo=UTC)
MINUTES = 20
BLOCKS = 27_000
H100_8B = roofline(gpu("H100-80GB"), model("llama-3.1-8b"))
_SCRAPES = 12  # a minute
_TPOT_EDGES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)


def requests_of(
    rate: float,
    prompt: float,
    generation: float,
    *,
    minutes: int = MINUTES,
    seed: int = 1,
    hits: float = 0.0,
) -> Requests:
    """Poisson arrivals, log-normal lengths with these means; ``hits``: share of each prompt."""
    rng = np.random.default_rng(seed)
    count = round(rate * 60 * minutes)
    prompts = np.clip(rng.lognormal(np.log(prompt) - 0.18, 0.6, count), 1, 16000).astype(int)
    return make_requests(
        np.sort(rng.uniform(0.0, 60.0 * minutes, count)),
        prompts,
        np.clip(rng.lognormal(np.log(generation) - 0.18, 0.6, count), 1, 8000).astype(int),
        cached_tokens=(hits * prompts).astype(int),
    )


def engine_minutes(
    requests: Requests,
    settings: SchedulerConfiguration,
    step_time: StepTime = H100_8B,
    *,
    minutes: int = MINUTES,
) -> pl.DataFrame:
    """What the pages of this engine give (MINUTE_SCHEMA)."""
    every = np.linspace(0.0, 60.0 * minutes, minutes * _SCRAPES + 1)
    run = Trial(requests, settings, observe=Observe(every)).run(
        step_time, until_seconds=60.0 * minutes
    )
    frame = run.requests

    def grown(name: str) -> np.ndarray:
        return np.diff(run.scraped(name)[::_SCRAPES].astype(float))

    def gauge(values: Any) -> np.ndarray:
        return np.asarray(values[1:], dtype=float).reshape(minutes, _SCRAPES).mean(axis=1)

    usage = run.kv_cache_usage_ratio
    columns: dict[str, Any] = {
        "forward_passes": grown("steps_observed"),
        "itl_seconds_sum": grown("itl_seconds_sum"),
        "itl_seconds_count": grown("itl_seconds_count"),
        "iteration_tokens_sum": grown("iteration_tokens_sum"),
        "prompt_tokens_total": grown("prompt_tokens"),
        "prompt_tokens_computed_total": grown("prompt_tokens_computed"),
        "generation_tokens_total": grown("generation_tokens"),
        "preemptions_total": grown("preemptions"),
        "prefix_cache_queries_total": grown("prefix_queries_tokens"),
        "prefix_cache_hits_total": grown("prefix_hits_tokens"),
        "running_requests": gauge(run.scraped("running")),
        "waiting_requests": gauge(run.waiting),
        "kv_cache_usage_ratio": np.zeros(minutes) if usage is None else gauge(usage),
    }
    first, end = "first_token_seconds", "end_seconds"
    tpot = (pl.col(end) - pl.col(first)) / (pl.col("generation_tokens") - 1)
    frame = frame.with_columns(
        tpot=pl.when(pl.col("generation_tokens") > 1).then(tpot),
        prefill=pl.col(first) - pl.col("first_scheduled_seconds"),
    )
    lengths = request_tokens(settings.max_model_len or 32768)
    for name, at, value, edges in (
        ("ttft_seconds", first, "ttft_seconds", TIME_TO_FIRST_TOKEN_SECONDS),
        ("tpot_seconds", end, "tpot", _TPOT_EDGES),
        ("queue_seconds", end, "queue_seconds", None),
        ("prefill_seconds", end, "prefill", None),
        ("e2e_seconds", end, "e2e_seconds", None),
        ("prompt_tokens", end, "prompt_tokens", lengths),
        ("generation_tokens", end, "generation_tokens", lengths),
    ):
        columns |= _histogram(frame, name, at, value, edges, minutes)
    return by_hand(minutes, **columns)


def _histogram(
    frame: pl.DataFrame,
    name: str,
    at: str,
    value: str,
    edges: Sequence[float] | None,
    minutes: int,
) -> dict[str, Any]:
    known = frame.drop_nulls([at, value]).filter(pl.col(at) <= 60.0 * minutes)
    minute = np.minimum((known[at].to_numpy() // 60).astype(int), minutes - 1)
    values = known[value].to_numpy().astype(float)
    found: dict[str, Any] = {
        f"{name}_sum": np.bincount(minute, values, minutes),
        f"{name}_count": np.bincount(minute, minlength=minutes).astype(float),
    }
    if edges is not None:
        counts = [
            [float((values[minute == number] <= edge).sum()) for edge in (*edges, np.inf)]
            for number in range(minutes)
        ]
        found |= {f"{name}_buckets": counts, f"{name}_edges": [[*edges, np.inf]] * minutes}
    return found


def by_hand(minutes: int, **columns: Any) -> pl.DataFrame:
    """Minutes (MINUTE_SCHEMA) with these columns; a scalar holds for each."""
    known = {
        "instance": "a:8000",
        "engine": "0",
        "pool": "a",
        "scrapes": 4.0,
        "duration_seconds": 60.0,
        "end": [START + timedelta(minutes=number + 1) for number in range(minutes)],
    } | {name: column for name, column in columns.items() if name in MINUTE_SCHEMA}
    rows = {
        name: list(one) if isinstance(one, list | np.ndarray) else [one] * minutes
        for name, one in known.items()
    }
    return pl.DataFrame(dict.fromkeys(MINUTE_SCHEMA) | rows, schema=MINUTE_SCHEMA)


def server_with(settings: SchedulerConfiguration, **more: Any) -> Server:
    """What is told of a server with these settings."""

    def said(value: int) -> Setting:
        return Setting(float(value), "config")

    return Server(
        serving=Serving(
            max_num_seqs=said(settings.max_num_seqs),
            max_num_batched_tokens=said(settings.max_num_batched_tokens),
            max_model_len=None if settings.max_model_len is None else said(settings.max_model_len),
        ),
        **{
            "model": "llama-3.1-8b",
            "gpu": "H100-80GB",
            "tensor_parallel": 1,
            "num_gpu_blocks": settings.num_gpu_blocks,
            "prefix_caching": settings.enable_prefix_caching,
            **more,
        },
    )


def question_of(
    requests: Requests,
    settings: SchedulerConfiguration,
    **more: Any,
) -> Question:
    """A page's question about this engine."""
    rows = engine_minutes(requests, settings)
    server = server_with(settings)
    return Question(rows["end"][-1], rows, server, slo_source="configuration", **more)
