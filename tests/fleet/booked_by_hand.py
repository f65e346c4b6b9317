"""A small engine told step by step, and a server that books it as vLLM does, one by one.

The engine is no scheduler: it only makes steps, tokens and requests that belong together. The
server is made of prometheus_client's own objects, as vLLM's ``v1/metrics/loggers.py`` is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from driftwatch.simulate.configuration import SchedulerConfiguration

CONFIGURATION = SchedulerConfiguration(
    max_num_seqs=8, max_num_batched_tokens=1024, num_gpu_blocks=2048, block_size=16,
    max_model_len=4096,
)  # fmt: skip


@dataclass
class Request:
    index: int
    arrival: float
    prompt: int
    generation: int
    cached: int = 0
    preemptions: int = 0
    patience: int | None = None  # tokens after which its client leaves
    scheduled: float | None = None
    token_times: list[float] = field(default_factory=list)
    status: str = "unfinished"
    end: float | None = None


@dataclass
class Step:
    end: float
    outputs: list[Request]  # who got a token, in order
    ended: list[Request]
    gauges: tuple[int, int, int, float]
    preempted: int
    admitted: list[Request]


@dataclass
class Run:
    requests: list[Request]
    steps: list[Step]
    rejected: list[tuple[float, str]]


def run(seed: int, count: int = 60, seats: int = 4) -> Run:
    """Requests that share ``seats``; some leave early, some are turned away."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(0.4, count))
    requests = [
        Request(
            # within max_model_len, or vLLM turns it away
            i, float(at),
            min(int(rng.lognormal(5, 1)) + 1, 3000), min(int(rng.lognormal(2.5, 1)) + 1, 1000),
            cached=16 * int(rng.integers(0, 3)) if rng.random() < 0.4 else 0,
            patience=int(rng.integers(0, 6)) if rng.random() < 0.15 else None,
        )
        for i, at in enumerate(arrivals)
    ]  # fmt: skip
    for r in requests:
        r.cached = min(r.cached, (r.prompt - 1) // 16 * 16)
    waiting, running, steps, rejected = [], [], [], []
    coming = list(requests)
    now = 0.0
    while coming or waiting or running:
        if not waiting and not running:
            now = max(now, coming[0].arrival)
        while coming and coming[0].arrival <= now:
            r = coming.pop(0)
            if len(waiting) >= 12:
                r.status, r.end = "rejected", r.arrival
                rejected.append((r.arrival, "rejected_reqs"))
            else:
                waiting.append(r)
        admitted = []
        while waiting and len(running) < seats:
            r = waiting.pop(0)
            r.scheduled = now
            running.append(r)
            admitted.append(r)
        prefill = sum(r.prompt - r.cached for r in admitted)
        now += float(0.02 + 1e-4 * prefill + 0.004 * len(running) + rng.exponential(0.01))
        preempted = 0
        if len(running) > 2 and rng.random() < 0.05:
            running[-1].preemptions += 1  # and goes on: only the count matters here
            preempted = 1
        outputs = list(running)
        ended = []
        for r in outputs:
            r.token_times.append(now)
            if r.patience is not None and len(r.token_times) > r.patience:
                r.status = "cancelled"
            elif len(r.token_times) == r.generation:
                r.status = "finished"
            else:
                continue
            r.end = now
            ended.append(r)
        running = [r for r in running if r.end is None]
        gauges = (len(running), len(waiting), 0, round(float(rng.random()), 6))
        steps.append(Step(now, outputs, ended, gauges, preempted, admitted))
    return Run(requests, steps, rejected)


# what is booked of a step or a request, with the labels that a metric has beside model and engine
_COUNTERS = (
    *("num_preemptions", "prefix_cache_queries", "prefix_cache_hits", "prompt_tokens"),
    *("generation_tokens", "external_prefix_cache_hits"),
)
_GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
_LABELLED = (
    (Gauge, "num_requests_waiting_by_reason", "reason", ("capacity", "deferred")),
    (Gauge, "engine_sleep_state", "sleep_state", ("awake",)),
    (Counter, "request_success", "finished_reason", ("stop", "length", "abort")),
    (Counter, "prompt_tokens_by_source", "source",
        ("local_compute", "local_cache_hit", "external_kv_transfer")),
)  # fmt: skip
_HISTOGRAMS = {
    "request_prompt_tokens": "prompt_tokens",
    "request_generation_tokens": "generation_tokens",
    "iteration_tokens_total": "iteration_tokens",
    "time_to_first_token_seconds": "ttft_seconds",
    "inter_token_latency_seconds": "itl_seconds",
    "request_time_per_output_token_seconds": "tpot_seconds",
    "e2e_request_latency_seconds": "e2e_seconds",
    "request_queue_time_seconds": "queue_seconds",
    "request_prefill_time_seconds": "prefill_seconds",
    "request_decode_time_seconds": "decode_seconds",
}


class BookedServer:
    """vLLM 0.32's logger for one engine: ``record`` once a step."""

    def __init__(self, server: Any, model_name: str = "m") -> None:
        self.registry = CollectorRegistry()
        own = {"model_name": model_name, "engine": "0"}
        self.metrics: dict[str, Any] = {}

        def make(kind: Any, name: str, label: str = "", values: tuple[str, ...] = (), **more: Any):
            labels = [*own, *([label] if label else [])]
            metric = kind(f"vllm:{name}", name, labels, registry=self.registry, **more)
            for value in values or ("",):
                given = own | ({label: value} if label else {})
                self.metrics[f"{name}/{value}" if value else name] = metric.labels(**given)

        for name in _COUNTERS:
            make(Counter, name)
        for name in _GAUGES:
            make(Gauge, name)
        for kind, name, label, values in _LABELLED:
            make(kind, name, label, values)
        for name, column in _HISTOGRAMS.items():
            make(Histogram, name, buckets=server.edges()[column])
        rejected = Counter(
            "vllm:admission_rejections", "-", ["model_name", "reason"], registry=self.registry
        )
        self.rejected = rejected.labels(model_name=model_name, reason="max_num_queued_reqs")
        self.metrics["engine_sleep_state/awake"].set(1)

    def record(self, step: Step) -> None:
        m = self.metrics
        running, capacity, deferred, kv = step.gauges
        m["num_requests_running"].set(running)
        m["num_requests_waiting"].set(capacity + deferred)
        m["num_requests_waiting_by_reason/capacity"].set(capacity)
        m["num_requests_waiting_by_reason/deferred"].set(deferred)
        m["kv_cache_usage_perc"].set(kv)
        for r in step.admitted:
            m["prefix_cache_queries"].inc(r.prompt)
            m["prefix_cache_hits"].inc(r.cached)
        if not step.outputs:
            return
        m["num_preemptions"].inc(step.preempted)
        first = [r for r in step.outputs if r.token_times[0] == step.end]
        m["prompt_tokens"].inc(sum(r.prompt for r in first))
        m["prompt_tokens_by_source/local_cache_hit"].inc(sum(r.cached for r in first))
        m["prompt_tokens_by_source/local_compute"].inc(sum(r.prompt - r.cached for r in first))
        m["generation_tokens"].inc(len(step.outputs))
        m["iteration_tokens_total"].observe(
            sum(r.prompt - r.cached for r in first) + len(step.outputs)
        )
        for r in step.outputs:
            if r in first:
                m["time_to_first_token_seconds"].observe(step.end - r.arrival)
            else:
                at = r.token_times.index(step.end)
                m["inter_token_latency_seconds"].observe(step.end - r.token_times[at - 1])
        for r in sorted(step.ended, key=lambda r: r.index):
            if r.status == "finished":
                self._finished(r)

    def _finished(self, r: Request) -> None:
        m = self.metrics
        asked = r.generation
        m[f"request_success/{'length' if r.generation >= asked else 'stop'}"].inc()
        m["e2e_request_latency_seconds"].observe(r.end - r.arrival)
        m["request_queue_time_seconds"].observe(r.scheduled - r.arrival)
        m["request_prefill_time_seconds"].observe(r.token_times[0] - r.scheduled)
        m["request_decode_time_seconds"].observe(r.end - r.token_times[0])
        mean = (r.end - r.token_times[0]) / (r.generation - 1) if r.generation > 1 else 0.0
        m["request_time_per_output_token_seconds"].observe(mean)
        m["request_prompt_tokens"].observe(r.prompt)
        m["request_generation_tokens"].observe(r.generation)

    def reject(self) -> None:
        self.rejected.inc()

    def page(self) -> str:
        return generate_latest(self.registry).decode()


def outcome(
    run: Run, server: Any, scrapes: np.ndarray, since: float, until: float
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What the simulator says of a stretch of the run (since < time <= until)."""
    requests = [r for r in run.requests if r.end is not None and since < r.end <= until]
    return request_frame(requests), scrape_rows(run, server, scrapes)


def request_frame(requests: list[Request]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "index": r.index,
                "status": r.status,
                "arrival_seconds": r.arrival,
                "first_scheduled_seconds": r.scheduled,
                "first_token_seconds": r.token_times[0] if r.token_times else None,
                "end_seconds": r.end,
                "prompt_tokens": r.prompt,
                "generation_tokens": r.generation,
                "generated_tokens": len(r.token_times),
                "cached_tokens": r.cached,
                "preemptions": r.preemptions,
            }
            for r in requests
        ],
        schema={
            "index": pl.Int64, "status": pl.String, "arrival_seconds": pl.Float64,
            "first_scheduled_seconds": pl.Float64, "first_token_seconds": pl.Float64,
            "end_seconds": pl.Float64, "prompt_tokens": pl.Int64, "generation_tokens": pl.Int64,
            "generated_tokens": pl.Int64, "cached_tokens": pl.Int64, "preemptions": pl.Int64,
        },
    )  # fmt: skip


def scrape_rows(run: Run, server: Any, times: np.ndarray) -> pl.DataFrame | None:
    """Step counters by counting every step anew for each scrape."""
    if not len(times):
        return None
    edges = server.edges()
    rows = []
    for time in times:
        steps = [s for s in run.steps if s.end <= time]
        firsts = [(s, r) for s in steps for r in s.outputs if r.token_times[0] == s.end]
        itls, iteration, itl_sum = [], [], 0.0
        for s in steps:
            first = [r for r in s.outputs if r.token_times[0] == s.end]
            iteration.append(sum(r.prompt - r.cached for r in first) + len(s.outputs))
            for r in s.outputs:
                if r not in first:
                    at = r.token_times.index(s.end)
                    itls.append(s.end - r.token_times[at - 1])
                    itl_sum += itls[-1]
        gauges = steps[-1].gauges if steps else (0, 0, 0, 0.0)
        admitted = [r for s in steps for r in s.admitted]
        rows.append(
            {
                "time_seconds": float(time),
                "running": gauges[0],
                "waiting_capacity": gauges[1],
                "waiting_deferred": gauges[2],
                "kv_cache_usage_ratio": gauges[3],
                "steps_observed": len(steps),
                "steps_all": len(steps),
                "busy_seconds": 0.05 * len(steps),
                "iteration_tokens_sum": float(sum(iteration)),
                "iteration_tokens_buckets": _cumulative(
                    iteration, server.edges()["iteration_tokens"]
                ),
                "itl_seconds_sum": itl_sum,
                "itl_seconds_count": len(itls),
                "itl_seconds_buckets": _cumulative(itls, edges["itl_seconds"]),
                "prompt_tokens": sum(r.prompt for _, r in firsts),
                "prompt_tokens_computed": sum(r.prompt - r.cached for _, r in firsts),
                "generation_tokens": sum(len(s.outputs) for s in steps),
                "preemptions": sum(s.preempted for s in steps),
                "prefix_queries_tokens": sum(r.prompt for r in admitted),
                "prefix_hits_tokens": sum(r.cached for r in admitted),
                "rejected_reqs": sum(at <= time for at, _ in run.rejected),
                "rejected_tokens": 0,
                "decode_seqs_total": len(itls),
                "prefill_tokens_total": sum(r.prompt - r.cached for r in admitted),
                "kv_tokens_read_total": 100 * len(itls),
            }
        )
    return pl.DataFrame(rows)


def _cumulative(values: list[float], edges: tuple[float, ...]) -> list[int]:
    return [*(sum(v <= edge for v in values) for edge in edges), len(values)]
