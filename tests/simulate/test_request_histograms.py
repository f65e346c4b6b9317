"""Histograms of a simulated run, against vLLM's own client library observing one by one."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from prometheus_client import CollectorRegistry, Histogram

from driftwatch.simulate import vllm_buckets
from driftwatch.simulate.request_histograms import Histograms, edges_of


def histogram_frame(
    requests: pl.DataFrame, scrapes: np.ndarray, *, max_model_len: int
) -> pl.DataFrame:
    """All histograms of a run in one piece."""
    first_tokens = requests.filter(pl.col("first_token_seconds").is_not_null())
    return Histograms(edges_of(max_model_len, 1)).take(requests, first_tokens, scrapes)


def ended(count: int, seed: int) -> pl.DataFrame:
    """Requests as ``Outcome.requests`` has them, in every state."""
    rng = np.random.default_rng(seed)
    arrival = np.sort(rng.uniform(0, 100, count))
    queue, prefill = rng.exponential(0.4, count), rng.exponential(0.3, count)
    generated = rng.integers(1, 300, count)
    end = arrival + queue + prefill + (generated - 1) * rng.uniform(0.005, 0.2, count)
    status = rng.choice(["finished", "finished", "cancelled", "rejected"], count)
    served, done = status != "rejected", status == "finished"
    return pl.DataFrame(
        {
            "status": status,
            "arrival_seconds": arrival,
            "first_scheduled_seconds": np.where(served, arrival + queue, np.nan),
            "first_token_seconds": np.where(served, arrival + queue + prefill, np.nan),
            "end_seconds": end,
            "ttft_seconds": np.where(served, queue + prefill, np.nan),
            "e2e_seconds": np.where(done, end - arrival, np.nan),
            "queue_seconds": np.where(served, queue, np.nan),
            "prompt_tokens": rng.integers(17, 6000, count),
            "generation_tokens": generated,
            "generated_tokens": generated,
            "preemptions": rng.integers(0, 7, count),
            "cached_tokens": rng.integers(0, 2, count) * 16,
        }
    ).with_columns(pl.selectors.float().fill_nan(None))


def observed(requests: pl.DataFrame, family: str, until: float) -> tuple[list[float], float, float]:
    """Cumulative buckets, sum and count, as vLLM's loggers.py observes them."""
    tokens = vllm_buckets.request_tokens(8192)
    latency = vllm_buckets.REQUEST_LATENCY_SECONDS
    edges = {
        "time_to_first_token_seconds": vllm_buckets.TIME_TO_FIRST_TOKEN_SECONDS,
        "request_time_per_output_token_seconds": vllm_buckets.INTER_TOKEN_LATENCY_SECONDS,
        "request_num_preemptions": vllm_buckets.NUM_PREEMPTIONS,
        "request_params_n": vllm_buckets.PARAMS_N,
    }.get(family, tokens if family.endswith("_tokens") else latency)
    histogram = Histogram("h", "h", buckets=edges, registry=CollectorRegistry())
    for row in requests.iter_rows(named=True):
        first, end = row["first_token_seconds"], row["end_seconds"]
        if family == "time_to_first_token_seconds":
            if first is not None and first <= until:
                histogram.observe(row["ttft_seconds"])
            continue
        if row["status"] != "finished" or end > until:
            continue
        decode, count = end - first, row["generated_tokens"]
        histogram.observe(
            {
                "e2e_request_latency_seconds": row["e2e_seconds"],
                "request_queue_time_seconds": row["queue_seconds"],
                "request_inference_time_seconds": end - row["first_scheduled_seconds"],
                "request_prefill_time_seconds": first - row["first_scheduled_seconds"],
                "request_decode_time_seconds": decode,
                "request_time_per_output_token_seconds": decode / (count - 1) if count > 1 else 0,
                "request_prompt_tokens": row["prompt_tokens"],
                "request_generation_tokens": count,
                "request_max_num_generation_tokens": row["generation_tokens"],
                "request_params_max_tokens": row["generation_tokens"],
                "request_params_n": 1,
                "request_prefill_kv_computed_tokens": row["prompt_tokens"] - row["cached_tokens"],
                "request_num_preemptions": row["preemptions"],
            }[family]
        )
    samples = histogram.collect()[0].samples
    buckets = [sample.value for sample in samples if sample.name == "h_bucket"]
    total = {sample.name: sample.value for sample in samples}
    return buckets, total["h_sum"], total["h_count"]


def test_every_family_at_every_scrape() -> None:
    requests = ended(400, seed=2)
    scrapes = np.array([0.0, 3.0, 20.0, 21.0, 60.0, 200.0])
    found = histogram_frame(requests, scrapes, max_model_len=8192)
    families = [name.removesuffix("_count") for name in found.columns if name.endswith("_count")]
    assert len(families) == 14
    for family in families:
        assert len(found[f"{family}_edges"][0]) == len(found[f"{family}_buckets"][0]) - 1
        for row, at in enumerate(scrapes):
            buckets, total, count = observed(requests, family, at)
            assert found[f"{family}_buckets"][row].to_list() == buckets
            assert found[f"{family}_sum"][row] == pytest.approx(total, rel=1e-12)
            assert found[f"{family}_count"][row] == count
    assert found["request_queue_time_seconds_count"].to_list()[-1] > 100
