"""The part of ``driftwatch plan`` that replays: presets, and the queue at a rate."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from driftwatch.cli.plan_asked import Asked
from driftwatch.errors import ImpossibleConfiguration, UsageError
from driftwatch.simulate import planning_replay
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.kv_cache import capture_sizes, largest_capture_size
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

_SHARE_OF_CAPACITY = 0.7  # the demand of a comparison where none is given


def _configuration(asked: Asked, seqs: int, budget: int) -> SchedulerConfiguration:
    blocks = asked.memory(seqs, budget).num_gpu_blocks
    longest = min(asked.max_model_len, max(asked.mix.longest, 1))
    configuration = SchedulerConfiguration(
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        num_gpu_blocks=blocks,
        block_size=asked.block_size,
        max_model_len=longest,
    )
    configuration.check()
    return configuration


def under_demand(asked: Asked) -> dict[str, Any]:
    """Presets and queue: both need the demand, and the capacity of the server as it is."""
    seqs, budget = asked.max_num_seqs, asked.max_num_batched_tokens
    now = _configuration(asked, seqs, budget)
    law = _law(asked, now)
    capacity = planning_replay.capacity_per_second(asked.requests, now, law)
    rate = asked.rate_per_second
    requests = asked.requests
    if rate is None and capacity is None:
        raise UsageError(
            f"{len(requests)} requests are too few to measure a capacity",
            help_text="give --rate, or a file with more requests",
        )
    source = "given"
    if rate is None and asked.timed:
        source = "file"
        rate = (len(requests) - 1) / float(np.ptp(requests.arrival_seconds))
    else:
        if rate is None:
            source, rate = "assumed", _SHARE_OF_CAPACITY * (capacity or 0.0)
        rng = np.random.default_rng(asked.seed)
        requests = planning_replay.paced(requests, rate, rng)
    demand = {
        "requests_per_second": rate,
        "source": source,
        "capacity_requests_per_second": capacity,
    }
    targets: dict[str, Any] = {
        "ttft_seconds": asked.ttft_seconds,
        "tpot_seconds": asked.tpot_seconds,
    }
    found: dict[str, Any] = {"demand": demand}
    at_rate = planning_replay.replay(requests, now, law, **targets)
    if asked.objective is not None:
        found["presets"] = _presets(
            asked, requests, _row("as given", now, at_rate, capacity), targets
        )
    if asked.rate_per_second is not None:
        found["queue"] = _queue(asked, rate, capacity, at_rate, law)
    return found


def _law(asked: Asked, configuration: SchedulerConfiguration) -> StepTime:
    """A law for the batch that this configuration can run, padded as CUDA graphs are."""
    most = configuration.max_num_seqs
    largest = largest_capture_size(asked.gpu)
    sizes = capture_sizes(most, configuration.max_num_batched_tokens, largest=largest)
    law = asked.law_of(most)
    return law if asked.law is not None else replace(law, capture_sizes=sizes)


def _presets(
    asked: Asked,
    requests: Requests,
    today: dict[str, Any],
    targets: dict[str, Any],
) -> list[dict[str, Any]]:
    rows = [today]
    for name, (seqs, budget) in planning_replay.PRESETS.items():
        try:
            configuration = _configuration(asked, seqs, budget)
            law = _law(asked, configuration)
            replayed = planning_replay.replay(requests, configuration, law, **targets)
            capacity = planning_replay.capacity_per_second(asked.requests, configuration, law)
        except ImpossibleConfiguration as error:
            rows.append({"name": name, "reason": error.message})
            continue
        rows.append(_row(name, configuration, replayed, capacity))
    return rows


def _row(
    name: str,
    configuration: SchedulerConfiguration,
    replayed: planning_replay.Replayed,
    capacity: float | None,
) -> dict[str, Any]:
    return {
        "name": name,
        "max_num_seqs": configuration.max_num_seqs,
        "max_num_batched_tokens": configuration.max_num_batched_tokens,
        "num_gpu_blocks": configuration.num_gpu_blocks,
        "capacity_requests_per_second": capacity,
        **asdict(replayed),
    }


def _queue(
    asked: Asked,
    rate: float,
    capacity: float | None,
    at_rate: planning_replay.Replayed,
    law: StepTime,
) -> dict[str, Any]:
    """ρ, the M/M/1 bound, the replayed wait, and what the target leaves for waiting."""
    mix = asked.mix
    # one prompt in an empty server, in as many steps as the budget makes of it
    steps = int(np.ceil(mix.prompt_mean / asked.max_num_batched_tokens))
    service = steps * law.c0_seconds + law.c1_seconds_per_prefill_token * mix.prompt_mean
    alone = service + (mix.generation_mean - 1) * law.seconds(0, 1, round(mix.context_mean))
    single = None if capacity is None else planning_replay.single_queue(rate, 1 / capacity)
    budget = None if asked.ttft_seconds is None else asked.ttft_seconds - service
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
        "replayed_queue_seconds_mean": at_rate.queue_seconds_mean,
        "replayed_ttft_seconds_mean": at_rate.ttft_seconds_mean,
        "replayed_ttft_seconds_p95": at_rate.ttft_seconds_p95,
        "replayed_tpot_seconds_p95": at_rate.tpot_seconds_p95,
        "replayed_requests": at_rate.requests,
        "in_target_ratio": at_rate.in_target_ratio,
        "wait_budget_seconds": budget,
    }
