"""The part of ``driftwatch plan`` that replays: presets, and the queue at a rate."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from driftwatch.cli.plan.question import Question
from driftwatch.errors import ImpossibleConfiguration, UsageError
from driftwatch.lab import planning
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.demand import (
    PRESETS,
    Measured,
    capacity_per_second,
    paced,
    simulate_demand,
    single_queue,
)
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

NEAR = 0.05  # closer than this, two settings are the same
_SHARE_OF_CAPACITY = 0.7  # the demand of a comparison where none is given


def _configuration(question: Question, seqs: int, budget: int) -> SchedulerConfiguration:
    blocks = question.memory(seqs, budget).num_gpu_blocks
    longest = min(question.max_model_len, max(question.mix.longest, 1))
    configuration = SchedulerConfiguration(
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        num_gpu_blocks=blocks,
        block_size=question.block_size,
        max_model_len=longest,
    )
    configuration.check()
    return configuration


def under_demand(question: Question) -> dict[str, Any]:
    """Presets and queue: both need the demand, and the capacity of the server as it is."""
    seqs, budget = question.max_num_seqs, question.max_num_batched_tokens
    now = _configuration(question, seqs, budget)
    step_time = question.step_time
    capacity = capacity_per_second(question.requests, now, step_time)
    rate = question.rate_per_second
    requests = question.requests
    if rate is None and capacity is None:
        raise UsageError(
            f"{len(requests)} requests are too few to measure a capacity",
            help_text="give --rate, or a file with more requests",
        )
    source = "given"
    if rate is None and question.timed:
        source = "file"
        rate = (len(requests) - 1) / float(np.ptp(requests.arrival_seconds))
    else:
        if rate is None:
            source, rate = "assumed", _SHARE_OF_CAPACITY * (capacity or 0.0)
        rng = np.random.default_rng(question.seed)
        requests = paced(requests, rate, rng)
    demand = {
        "requests_per_second": rate,
        "source": source,
        "capacity_requests_per_second": capacity,
    }
    targets: dict[str, Any] = {
        "ttft_seconds": question.ttft_seconds,
        "tpot_seconds": question.tpot_seconds,
    }
    document: dict[str, Any] = {"demand": demand}
    at_rate = simulate_demand(requests, now, step_time, **targets)
    if question.objective is not None:
        document["presets"] = _presets(
            question, requests, _row("as given", now, at_rate, capacity, rate), targets
        )
        document["best_preset"] = _best(question.objective, document["presets"])
    if question.rate_per_second is not None:
        document["queue"] = _queue(question, rate, capacity, at_rate, step_time)
    return document


def _presets(
    question: Question,
    requests: Requests,
    today: dict[str, Any],
    targets: dict[str, Any],
) -> list[dict[str, Any]]:
    """Each preset with the step-time model as given: what differs is the scheduling alone."""
    rows, step_time = [today], question.step_time
    rate = today["demand_requests_per_second"]
    for name, (seqs, budget) in PRESETS.items():
        try:
            configuration = _configuration(question, seqs, budget)
            measured = simulate_demand(requests, configuration, step_time, **targets)
            capacity = capacity_per_second(question.requests, configuration, step_time)
        except ImpossibleConfiguration as error:
            rows.append({"name": name, "reason": error.message})
            continue
        rows.append(_row(name, configuration, measured, capacity, rate))
    return rows


def _row(
    name: str,
    configuration: SchedulerConfiguration,
    measured: Measured,
    capacity: float | None,
    rate: float,
) -> dict[str, Any]:
    return {
        "name": name,
        "max_num_seqs": configuration.max_num_seqs,
        "max_num_batched_tokens": configuration.max_num_batched_tokens,
        "num_gpu_blocks": configuration.num_gpu_blocks,
        "capacity_requests_per_second": capacity,
        "demand_requests_per_second": rate,
        **_latencies(measured, overloaded=capacity is not None and rate >= capacity),
    }


def _latencies(measured: Measured, *, overloaded: bool) -> dict[str, Any]:
    """What was measured; above the capacity its waits only say how long the simulation was."""
    values = asdict(measured)
    reason = in_target = None
    if overloaded:
        reason = "overloaded: the queue grows as long as requests come"
        for name in values:
            if name.startswith(("queue_", "ttft_", "e2e_")) or name == "in_target_ratio":
                values[name] = None
    elif measured.ttft_seconds_p95 is None or measured.tpot_seconds_p95 is None:
        reason = "too few requests finished"
    if values["in_target_ratio"] is None:
        in_target = reason if overloaded else "no --ttft-seconds and no --tpot-seconds is given"
        if not overloaded and measured.finished == 0:
            in_target = "no request finished"
    return {
        **values,
        "overloaded": overloaded,
        "latency_reason": reason,
        "in_target_reason": in_target,
    }


def _best(objective: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Which settings serve the objective best, by what, and why where none does."""
    by = "capacity_requests_per_second" if objective == "throughput" else "e2e_seconds_mean"
    able = [row for row in rows if row.get(by) is not None]
    if not able:
        few = "too few requests to measure a capacity"
        reason = few if objective == "throughput" else "all are overloaded at this demand"
        return {"names": [], "by": by, "reason": reason}
    if objective == "throughput":
        most = max(row[by] for row in able)
        return {"names": [r["name"] for r in able if r[by] >= most * (1 - NEAR)], "by": by}
    shares = [row["in_target_ratio"] or 0.0 for row in able]
    if min(shares) < max(shares) * (1 - NEAR):
        by = "in_target_ratio"
        able = [r for r, s in zip(able, shares, strict=True) if s >= max(shares) * (1 - NEAR)]
        return {"names": [row["name"] for row in able], "by": by}
    least = min(row[by] for row in able)
    return {"names": [r["name"] for r in able if r[by] <= least * (1 + NEAR)], "by": by}


def _queue(
    question: Question,
    rate: float,
    capacity: float | None,
    at_rate: Measured,
    step_time: StepTime,
) -> dict[str, Any]:
    """ρ, the M/M/1 bound, the measured wait, and what the target leaves for waiting."""
    mix = question.mix
    prompt = max(1, round(mix.prompt_mean))
    service = planning.prompt_alone_seconds(prompt, question.max_num_batched_tokens, step_time)
    alone = service + (mix.generation_mean - 1) * step_time.seconds(0, 1, round(mix.context_mean))
    single = None if capacity is None else single_queue(rate, 1 / capacity)
    budget = None if question.ttft_seconds is None else question.ttft_seconds - service
    latencies = _latencies(at_rate, overloaded=capacity is not None and rate >= capacity)
    reason = None
    if single is None:
        reason = "too few requests to measure a capacity"
    elif single.wait_seconds is None:
        reason = "no steady state: the rate is not below the capacity"
    return {
        "reason": reason,
        "utilisation_ratio": None if single is None else single.utilisation_ratio,
        "mm1_service_seconds": None if single is None else single.service_seconds,
        "mm1_wait_seconds": None if single is None else single.wait_seconds,
        "mm1_time_seconds": None if single is None else single.time_seconds,
        "one_at_a_time_utilisation_ratio": rate * alone,
        "request_alone_seconds": alone,
        "ttft_alone_seconds": service,
        "replayed_queue_seconds_mean": latencies["queue_seconds_mean"],
        "replayed_ttft_seconds_mean": latencies["ttft_seconds_mean"],
        "replayed_ttft_seconds_p95": latencies["ttft_seconds_p95"],
        "replayed_tpot_seconds_p95": latencies["tpot_seconds_p95"],
        "replayed_requests": at_rate.requests,
        "replayed_reason": latencies["latency_reason"],
        "in_target_ratio": latencies["in_target_ratio"],
        "in_target_reason": latencies["in_target_reason"],
        "wait_budget_seconds": budget,
    }
