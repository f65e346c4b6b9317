"""Random servers whose traffic drifts: model, GPU, knobs, lengths, demand, targets, engine."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from driftwatch.fleet.hidden_engine import configuration_of, step_time_of
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.traffic import PoolTraffic
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.demand import capacity_per_second, paced
from driftwatch.simulate.trial import simulate

DRIFT_AT = 1800.0
PAGED_AFTER = (660.0, 1500.0)  # from the drift to the question: a page is ten minutes late at least
LEAST_RATE = 0.1  # requests a second: long requests come as seldom
KNOWN_BUDGET = 0.85
LASTING = 3000.0  # of the drift: half an hour at least after any change could have been made

# model, GPU, GPUs a replica: from a small card to a large model on four
POOLS = (
    ("llama-3.1-8b", "H100-80GB", 1),
    ("llama-3.1-8b", "A100-80GB", 1),
    ("llama-3.1-8b", "L40S", 1),
    ("qwen2.5-14b", "A100-80GB", 1),
    ("qwen2.5-32b", "H100-80GB", 1),
    ("llama-3.1-70b", "H100-80GB", 4),
    ("llama-3.1-70b", "A100-80GB", 4),
    ("mistral-7b", "A10G", 1),
)
SEQS = (16, 32, 64, 128, 256, 512)
TOKENS = (512, 1024, 2048, 4096, 8192)
SOURCES = ("azure_conv", "azure_code", "servegen")


@dataclass(frozen=True)
class Case:
    """One server and its drift."""

    said: dict[str, Any]
    seed: int
    asked_at: float
    drift: tuple[float, float, float]
    knows_budget: bool

    @cached_property
    def scenario(self) -> Scenario:
        """The replica."""
        return Scenario.model_validate(self.said)


def case_of(seed: int, number: int) -> Case:
    """The case of a seed and a number; independent of every other."""
    rng = np.random.default_rng([seed, number])
    while True:  # until it is a server with enough requests to be judged at all
        case = _drawn(rng, f"case-{seed}-{number}")
        if case is not None:
            return case


def _drawn(rng: np.random.Generator, name: str) -> Case | None:
    model, gpu, gpus = POOLS[rng.integers(len(POOLS))]
    seqs = int(rng.choice(SEQS))
    tokens = int(rng.choice([t for t in TOKENS if t >= seqs]))
    prompt, generation, rate = _drift(rng)
    said: dict[str, Any] = {
        "name": name,
        "title": "a random server",
        "duration": f"{DRIFT_AT + LASTING:.0f}s",
        "pool": {
            "replicas": 1,
            "model": model,
            "gpu": gpu,
            "gpus_per_replica": gpus,
            "dcgm": False,
            "serving": {
                "max_num_seqs": seqs,
                "max_num_batched_tokens": tokens,
                "max_model_len": 32768,
            },
        },
        "traffic": {
            "source": str(rng.choice(SOURCES)),
            "requests_per_second": 2.0,
            "prefix_hit_ratio": float(rng.choice([0.0, 0.03, 0.2])),
        },
        "engine": {
            "times_roofline": float(rng.uniform(1.0, 1.5)),
            "quadratic_ratio": float(rng.uniform(0.5, 1.5)),
            "jitter_sigma": float(rng.uniform(0.03, 0.1)),
            "wander_sd_ratio": float(rng.uniform(0.01, 0.04)),
            "stalls_per_day": float(rng.choice([0.0, 4.0, 12.0])),
        },
        "truth": {"baseline": {"at": "2m", "until": f"{DRIFT_AT - 60:.0f}s"}, "effects": []},
    }
    said["pool"]["serving"]["max_model_len"] = _longest(said)
    before = _before(said, rng)
    if before is None:
        return None
    said["traffic"]["requests_per_second"], said["pool"]["slo"] = before
    said["traffic"]["changes"] = [
        {
            "at": f"{DRIFT_AT:.0f}s",
            "prompt_factor": prompt,
            "generation_factor": generation,
            "rate_factor": rate,
        }
    ]
    asked = DRIFT_AT + float(rng.uniform(*PAGED_AFTER))
    return Case(
        said,
        int(rng.integers(2**31)),
        math.floor(asked / 60.0) * 60.0,
        (prompt, generation, rate),
        bool(rng.random() < KNOWN_BUDGET),
    )


def _drift(rng: np.random.Generator) -> tuple[float, float, float]:
    """Prompts, generations or demand grow, sometimes two of them."""
    factors = [1.0, 1.0, 1.0]
    for which in rng.choice(3, size=int(rng.choice([1, 1, 2])), replace=False):
        most = 4.0 if which < 2 else 2.5
        factors[which] = float(np.exp(rng.uniform(np.log(1.3), np.log(most))))
    return round(factors[0], 3), round(factors[1], 3), round(factors[2], 3)


def _longest(said: dict[str, Any]) -> int:
    """max_model_len: what the KV cache holds, 32,768 at most."""
    scenario = Scenario.model_validate(said)
    blocks = _configuration(scenario).num_gpu_blocks or 0
    return int(min(32768, (blocks - 1) * 16))


def _before(
    said: dict[str, Any], rng: np.random.Generator
) -> tuple[float, dict[str, float]] | None:
    """A demand that the server meets before the drift, and targets that are met then.

    The rate is a share of what a saturated server does; targets are some times the p95 that the
    hidden engine has at that rate, as of people who set them by what they saw.
    """
    scenario = Scenario.model_validate(said)
    configuration, step_time = (
        _configuration(scenario),
        step_time_of(scenario.engine, scenario.pool),
    )
    requests = PoolTraffic.of(scenario, int(rng.integers(2**31))).requests(0, 0.0, 1500.0)
    patient = replace(requests, cancel_seconds=np.full(len(requests), np.inf))
    most = capacity_per_second(patient, configuration, step_time)
    load = float(rng.uniform(0.3, 0.75))
    if most is None or load * most < LEAST_RATE:
        return None
    rows = simulate(paced(patient, load * most, rng), configuration, step_time).requests
    # the server starts empty
    done = rows.slice(int(len(rows) * 0.1)).filter(pl.col("status") == "finished")
    several = done.filter(pl.col("generated_tokens") > 1)
    if len(several) < 20:
        return None
    more = several["generated_tokens"] - 1
    each = (several["e2e_seconds"] - several["ttft_seconds"]) / more
    ttft_p95, tpot_p95 = (
        float(np.quantile(one.to_numpy(), 0.95)) for one in (done["ttft_seconds"], each)
    )
    ttft = ttft_p95 * float(np.exp(rng.uniform(np.log(1.5), np.log(6.0))))
    tpot = tpot_p95 * float(rng.uniform(1.2, 2.5))
    return round(load * most, 4), {
        "ttft_seconds": float(f"{max(ttft, 0.2):.2g}"),
        "tpot_seconds": float(f"{tpot:.2g}"),
    }


def _configuration(scenario: Scenario) -> SchedulerConfiguration:
    life = PoolTraffic.of(scenario, 0).servers[0].lives[0]
    return configuration_of(scenario, life.serving)
