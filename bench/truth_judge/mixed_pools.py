"""One pool of the mixed fleets, drawn at random: engine, settings, traffic, scrapes, targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from driftwatch.fleet.hidden_engine import configuration_of, step_time_of
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.traffic import PoolTraffic
from driftwatch.simulate.trial import simulate

HOUR, DAY = 3600, 86_400
TPOT = "vllm:request_time_per_output_token_seconds"
QUEUE = "vllm:request_queue_time_seconds"
OLD_IMAGE, NEW_IMAGE = (
    "registry.example/vllm-openai:v0.10.2",
    "registry.example/vllm-openai:v0.11.0",
)

Data = dict[str, Any]
Random = np.random.Generator


@dataclass(frozen=True, slots=True)
class Traces:
    """Whose requests the pools get."""

    servegen: Path | None = None
    days: tuple[int, int] = (0, 7)
    clients: str = "even"


# Detectors are worked on with ServeGen's first week and one half of m-mid's clients; the second
# week and the other half are looked at once.
WORKING, HELD_OUT = Traces(), Traces(days=(7, 7), clients="odd")

# (model, GPU, tensor parallelism), with how many times slower than its roofline it is at least: a
# step of 15 to 60 ms, so that a server-day is 2 to 6 million steps
HARDWARE: Sequence[tuple[str, str, int, float]] = (
    ("llama-3.1-8b", "H100-80GB", 1, 3.0),
    ("llama-3.1-8b", "A100-80GB", 1, 2.0),
    ("llama-3.1-8b", "L40S", 1, 1.1),
    ("llama-3.1-8b", "A10", 1, 1.1),
    ("qwen3-8b", "H100-80GB", 1, 3.0),
    ("llama-3.1-70b", "H100-80GB", 4, 1.5),
)


def log_uniform(rng: Random, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def chance(rng: Random, share: float) -> bool:
    return bool(rng.random() < share)


def seconds(value: float) -> str:
    return f"{round(value)}s"


def _engine(rng: Random, least: float) -> Data:
    """The hidden engine: the roofline in one half, any hinged linear one in the other."""
    times = least * log_uniform(rng, 1.0, 2.0)
    found: Data = {
        "jitter_sigma": round(float(rng.uniform(0.03, 0.1)), 4),
        "wander_sd_ratio": round(float(rng.uniform(0.02, 0.05)), 4),
        "wander_correlation": seconds(rng.uniform(HOUR, 4 * HOUR)),
        "stalls_per_day": round(log_uniform(rng, 1.0, 12.0), 2),
        "cuda_graphs": chance(rng, 0.8),
        "quadratic_ratio": round(log_uniform(rng, 0.3, 3.0) * times, 3),
    }
    if chance(rng, 0.5):
        return {**found, "times_roofline": round(times, 3)}
    step_time = {
        "c0_seconds": log_uniform(rng, 0.012, 0.05),
        "c1_seconds_per_prefill_token": log_uniform(rng, 2e-5, 1.5e-4),
        "c2_seconds_per_decode_seq": log_uniform(rng, 2e-5, 4e-4),
        "c3_seconds_per_kv_token": log_uniform(rng, 5e-9, 1.5e-7),
        "hinge_tokens": int(rng.choice([0, 0, 64, 128, 256])),
    }
    return {**found, "law": step_time}


def roomy(rng: Random) -> Data:
    """Settings of a service that has room: no round numbers."""
    sequences = round(log_uniform(rng, 24, 400))
    length = int(rng.integers(4200, 16_000))
    found: Data = {
        "max_num_seqs": sequences,
        "max_num_batched_tokens": max(sequences, round(log_uniform(rng, 900, 9000))),
        "max_model_len": length,
        "block_size": int(rng.choice([16, 16, 32])),
        "async_scheduling": chance(rng, 0.7),
    }
    if chance(rng, 0.5):
        tokens = max(1.2 * length, log_uniform(rng, 40_000, 400_000))
        found["num_gpu_blocks"] = int(tokens / found["block_size"]) + 1
    if chance(rng, 0.2):
        found["long_prefill_token_threshold"] = round(log_uniform(rng, 256, 1500))
    return found


def tight(rng: Random, serving: Data) -> Data:
    """The same with one limit that traffic meets at times."""
    which = str(rng.choice(["sequences", "tokens", "kv"]))
    found = dict(serving)
    if which == "sequences":
        found["max_num_seqs"] = round(log_uniform(rng, 6, 28))
    elif which == "tokens":
        found["max_num_seqs"] = min(found["max_num_seqs"], 128)
        found["max_num_batched_tokens"] = round(log_uniform(rng, 130, 500))
        found.pop("long_prefill_token_threshold", None)
    else:
        tokens = max(1.05 * found["max_model_len"], log_uniform(rng, 9000, 30_000))
        found["num_gpu_blocks"] = int(tokens / found["block_size"]) + 1
    found["max_num_batched_tokens"] = max(found["max_num_batched_tokens"], found["max_num_seqs"])
    return found


def _traffic(rng: Random, traces: Traces, days: int) -> Data:
    """Whose requests, and how they swing; without how many."""
    source = str(rng.choice(["azure_conv", "azure_code", "m-small", "m-mid"]))
    found: Data = {
        "season": {
            "peak_to_trough": round(log_uniform(rng, 1.2, 5.0), 2),
            "peak_hour": float(rng.integers(0, 24)),
            "weekend_ratio": round(float(rng.uniform(0.4, 1.0)), 2),
        },
        "wander_ratio": round(float(rng.uniform(0.05, 0.2)), 3),
        "prefix_hit_ratio": round(float(rng.choice([0.0, rng.uniform(0.05, 0.6)])), 3),
    }
    if source.startswith("azure"):
        found["source"] = source
    else:
        first, span = traces.days
        offset = first + (int(rng.integers(0, span - days + 1)) if span > days else 0)
        found |= {"source": "servegen", "offset": f"{offset}d" if offset else "0"}
        if traces.servegen is not None:
            found |= {"path": str(traces.servegen.resolve()), "model_class": source}
            found |= {"clients": traces.clients} if source == "m-mid" else {}
        found["season"]["peak_to_trough"] = min(found["season"]["peak_to_trough"], 2.0)
    if chance(rng, 0.6):
        found["bursts"] = {
            "per_day": round(log_uniform(rng, 3, 40), 2),
            "lasting": seconds(log_uniform(rng, 60, 720)),
            "rate_factor": round(log_uniform(rng, 1.8, 6.0), 2),
            "prompt_factor": float(rng.choice([1.0, 1.0, 0.4, 2.5])),
            "generation_factor": float(rng.choice([1.0, 1.0, 0.3, 2.0])),
        }
    if hours := [*_heavy_nights(rng), *_idle_nights(rng)]:
        found["hours"] = hours
    return found


def _heavy_nights(rng: Random) -> list[Data]:
    """Long prompts with short answers in the night: mostly prefill."""
    if not chance(rng, 0.4):
        return []
    return [
        {
            "since_hour": float(rng.integers(19, 24)),
            "until_hour": float(rng.integers(2, 8)),
            "prompt_factor": round(log_uniform(rng, 1.5, 5.0), 2),
            "generation_factor": round(log_uniform(rng, 0.05, 0.6), 3),
            "rate_factor": round(log_uniform(rng, 0.4, 1.2), 2),
        }
    ]


def _idle_nights(rng: Random) -> list[Data]:
    """Hours with a request now and then."""
    if not chance(rng, 0.3):
        return []
    since = int(rng.integers(0, 24))
    until = (since + int(rng.integers(3, 9))) % 24
    rate = round(log_uniform(rng, 0.003, 0.1), 4)
    return [{"since_hour": float(since), "until_hour": float(until), "rate_factor": rate}]


def _answers_of_five_tokens(rng: Random) -> list[Data]:
    """A pool that classifies: answers of a few tokens, all the time."""
    if not chance(rng, 0.15):
        return []
    factor = round(log_uniform(rng, 0.012, 0.05), 4)
    rate = round(log_uniform(rng, 1.0, 3.0), 2)
    return [{"at": "0", "generation_factor": factor, "rate_factor": rate}]


def _coming_and_going(rng: Random, most_tokens: int, days: int) -> list[Data]:
    """Clients of their own lengths that send for some minutes or hours, several times a day.

    They do so from the start on: a baseline has seen them, if it is as long as they stay away.
    """
    if not chance(rng, 0.5):
        return []
    found: list[Data] = []
    for _ in range(int(rng.integers(1, 4))):
        client = {
            "share_ratio": round(float(rng.uniform(0.1, 0.6)), 3),
            "prompt_tokens": round(log_uniform(rng, 30, most_tokens / 3)),
            "generation_tokens": round(log_uniform(rng, 3, 500)),
        }
        for at in np.sort(
            rng.uniform(0, days * DAY - 60, rng.poisson(log_uniform(rng, 0.7, 8) * days))
        ):
            until = min(at + log_uniform(rng, 600, 3 * HOUR), days * DAY - 1)
            found.append({"at": seconds(at), "until": seconds(until), "new_client": client})
    return found


def _scrape(rng: Random, *, speed_is_measured: bool) -> Data:
    """How the pages are taken."""
    found: Data = {
        "interval": str(rng.choice(["15s", "30s", "30s", "60s"])),
        "jitter_seconds": round(log_uniform(rng, 0.02, 0.5), 3),
        "missed_ratio": round(log_uniform(rng, 0.0005, 0.01), 5),
    }
    if chance(rng, 0.4):
        found["lost_ratio"] = round(float(rng.uniform(0.02, 0.3)), 3)
    if chance(rng, 0.3):
        found["late_ratio"] = round(float(rng.uniform(0.01, 0.1)), 3)
    if chance(rng, 0.4):
        found["gaps_per_day"] = round(log_uniform(rng, 0.5, 6.0), 2)
    if chance(rng, 0.5):
        found["gpu_offset"] = seconds(float(rng.integers(1, 15)))
    if chance(rng, 0.3):
        found["without_buckets"] = [TPOT]
    elif chance(rng, 0.3):
        missing = [TPOT, QUEUE]
        # without these speed is unknown, and said to be
        of_speed = ["vllm:iteration_tokens_total", "vllm:inter_token_latency_seconds"]
        missing += [] if speed_is_measured else of_speed
        found["without_metrics"] = [str(rng.choice(missing))]
    return found


def _pool(rng: Random, servers: int, serving: Data) -> tuple[Data, float]:
    """Model, GPU and what is known of them; how many times slower than the roofline at least."""
    model, gpu, parallel, least = HARDWARE[int(rng.integers(len(HARDWARE)))]
    found: Data = {
        "name": "chat",
        "replicas": servers,
        "model": model,
        "gpu": gpu,
        "gpus_per_replica": parallel,
        "serving": serving,
        "dcgm": chance(rng, 0.6),
        "idle_clocks": chance(rng, 0.6),
        "declared": chance(rng, 0.75),
    }
    told = str(rng.choice(["label", "image", "nowhere"]))
    if told == "label":
        found["vllm_version"] = "0.10.2"
    elif told == "image":
        found["image"] = OLD_IMAGE
    return found, least


def pool_drawn(
    name: str, rng: Random, traces: Traces, servers: int, days: int, pinned_days: float,
    serving: Data, utilisation: float, *, speed_is_measured: bool,
) -> Data:  # fmt: skip
    """A pool of its own, with nothing injected yet."""
    pool, least = _pool(rng, servers, serving)
    traffic = _traffic(rng, traces, days) | {"utilisation_ratio": round(utilisation, 4)}
    most_tokens = int(serving["max_model_len"])
    changes = [*_answers_of_five_tokens(rng), *_coming_and_going(rng, most_tokens, days)]
    if changes:
        traffic["changes"] = changes
    found: Data = {
        "name": name,
        "title": "a pool that resembles no other",
        "duration": f"{days}d",
        "long": True,
        "start": "2026-11-16T00:00:00Z",
        "scrape": _scrape(rng, speed_is_measured=speed_is_measured),
        "pool": pool,
        "traffic": traffic,
        "engine": _engine(rng, least),
        "truth": {
            "baseline": {"at": seconds(HOUR), "until": seconds(pinned_days * DAY)},
            "effects": [],
        },
    }
    usual = usual_times(found, int(rng.integers(2**31)))
    found["traffic"]["timeout"] = seconds(min(max(60.0, 40.0 * usual.ttft_seconds), 300.0))
    if (slo := _slo(rng, usual)) is not None:
        pool["slo"] = slo
    return found


@dataclass(frozen=True, slots=True)
class Usual:
    """Times that a service has at the load it was made for."""

    ttft_seconds: float
    tpot_seconds: float
    running: float


def usual_times(data: Mapping[str, Any], seed: int, requests: float = 300.0) -> Usual:
    """What an operator would have measured in the busy hour before writing the targets down."""
    scenario = Scenario.model_validate(data)
    rate = PoolTraffic.of(scenario, 0).mean_rate / scenario.pool.replicas
    ratio = float(data["traffic"]["utilisation_ratio"])
    busy = rate * min(1.3, 0.85 / ratio)
    single = {**data["pool"], "replicas": 1}
    plain = {
        k: v
        for k, v in data["traffic"].items()
        if k not in ("utilisation_ratio", "bursts", "hours", "season", "changes")
    }
    plain["changes"] = [c for c in data["traffic"].get("changes", ()) if "new_client" not in c]
    alone = Scenario.model_validate(
        {**data, "pool": single, "traffic": {**plain, "requests_per_second": busy}}
    )
    sent = PoolTraffic.of(alone, seed).requests(0, 0.0, min(requests / busy, float(DAY)))
    ran = simulate(
        sent, configuration_of(alone, alone.pool.serving), step_time_of(alone.engine, alone.pool)
    ).requests.filter(status="finished")
    after = (ran["generated_tokens"] - 1).clip(lower_bound=1)
    tpot = (ran["e2e_seconds"] - ran["ttft_seconds"]) / after
    spent = float(ran["e2e_seconds"].sum()) / float(ran["end_seconds"].max() or 1.0)  # type: ignore[arg-type]
    ttft, token = (float(s.quantile(0.97) or 0.0) for s in (ran["ttft_seconds"], tpot))
    return Usual(max(ttft, 0.05), max(token, 0.005), spent)


def _slo(rng: Random, usual: Usual) -> Data | None:
    """Targets that the usual load meets; one alone, or none, in some pools."""
    ttft = round(usual.ttft_seconds * log_uniform(rng, 1.5, 6.0), 3)
    tpot = round(usual.tpot_seconds * log_uniform(rng, 1.3, 3.0), 4)
    which = str(rng.choice(["both", "both", "both", "ttft", "none"]))
    if which == "none":
        return None
    found = {"ttft_seconds": min(ttft, 10.0)}
    return found | ({"tpot_seconds": min(tpot, 1.0)} if which == "both" else {})
