"""Hidden engines: fit on what /metrics would say of an hour, forecast other configurations.

The truth has CUDA-graph steps, quadratic attention, step jitter, a slow wander and stalls; the
traffic is the Azure code trace and ServeGen's. What is given to the calibration is an hour of
scrapes every 15 s in chunks of minutes, and requests drawn anew inside their minute.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from driftwatch.fleet.hidden_engine import step_time_of, wander
from driftwatch.fleet.scenario.model import Engine, Pool
from driftwatch.recommend.calibration.calibrate import calibrate, with_bursts
from driftwatch.recommend.calibration.fits import Calibration, redrawn
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.traffic.observed import CHUNK_SCHEMA, Observed, Server
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.disturbance import Disturbance
from driftwatch.simulate.engine import Observe, simulate
from driftwatch.simulate.hardware import gpu, model
from driftwatch.simulate.kv_cache import num_gpu_blocks
from driftwatch.simulate.outcome import Outcome
from driftwatch.simulate.requests import Requests, make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.workload.servegen import ServeGen

HOUR = 3600.0
AT = datetime(2026, 11, 18, tzinfo=UTC)
POOLS = (
    ("llama-3.1-8b", "H100-80GB", 1),
    ("llama-3.1-8b", "L40S", 1),
    ("qwen2.5-14b", "A100-80GB", 1),
    ("llama-3.1-70b", "H100-80GB", 4),
)
SETTINGS = ((256, 2048), (64, 512), (32, 1024), (128, 8192))
SCRAPE_SECONDS = 15.0
FIRST_TOKENS = 100.0
MOST_CHUNKS = 30


@dataclass(frozen=True)
class Case:
    """One server and its hour."""

    name: str
    server: Server
    configuration: SchedulerConfiguration
    step_time: StepTime
    disturbance: Disturbance
    requests: Requests
    seed: int
    seconds: float = HOUR


@dataclass(frozen=True)
class Forecast:
    """One other configuration: what was forecast and what the hidden engine did."""

    case: str
    known: bool
    knob: str
    said: dict[str, float]
    was: dict[str, float]


def cases(shared_data: Path, seed: int, count: int, seconds: float = HOUR) -> Iterator[Case]:
    """Random servers: pool, settings, speed, traffic and how busy they are; their first seconds."""
    rng = np.random.default_rng([seed, 26])
    code = _azure(shared_data / "traces" / "azure_2023_code.csv.gz")
    folder = shared_data / "servegen"
    clients = ServeGen(folder / "m-small_rates.parquet", folder / "m-small_lengths.parquet")
    made = 0
    while made < count:
        name, device, share = POOLS[rng.integers(len(POOLS))]
        seqs, budget = SETTINGS[rng.integers(len(SETTINGS))]
        blocks = num_gpu_blocks(
            gpu(device),
            model(name),
            max_num_seqs=seqs,
            max_num_batched_tokens=budget,
            tensor_parallel=share,
        )
        configuration = SchedulerConfiguration(seqs, budget, blocks, max_model_len=16384)
        engine = Engine.model_validate(
            {
                "times_roofline": float(rng.uniform(1.0, 1.6)),
                "quadratic_ratio": float(rng.uniform(0.5, 2.0)),
            }
        )
        pool = Pool.model_validate({"model": name, "gpu": device, "gpus_per_replica": share})
        whole = step_time_of(engine, pool)
        step_time = replace(
            whole,
            c0_seconds=whole.c0_seconds * float(rng.uniform(0.85, 1.3)),
            c2_seconds_per_decode_seq=float(rng.uniform(5e-6, 6e-5)),
            c3_seconds_per_kv_token=whole.c3_seconds_per_kv_token * float(rng.uniform(0.7, 1.4)),
        )
        times = np.arange(0.0, 2 * HOUR, 30.0)
        disturbance = Disturbance(
            jitter_sigma=engine.jitter_sigma,
            factor_seconds=times,
            factors=wander(engine, rng, times),
            stall_seconds=np.sort(rng.uniform(0, HOUR, rng.poisson(0.3))),
            stall_durations_seconds=np.full(0, 1.0),
        )
        disturbance = replace(
            disturbance,
            stall_durations_seconds=rng.uniform(0.5, 5.0, len(disturbance.stall_seconds)),
        )
        traffic = code if rng.random() < 0.4 else _servegen(clients, rng)
        requests = _at_load(traffic, configuration, step_time, float(rng.uniform(0.3, 1.05)))
        if requests is None:
            continue
        server = Server(model=name, gpu=device, gpus=float(share), tensor_parallel=share)
        label = f"{name} {device} x{share} S{seqs} B{budget}"
        first = requests.take(requests.arrival_seconds < seconds)
        number = seed * 1000 + made
        yield Case(label, server, configuration, step_time, disturbance, first, number, seconds)
        made += 1


def _azure(path: Path) -> Requests:
    rows = pl.read_csv(path)
    at = rows["TIMESTAMP"].str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False)
    seconds = at.dt.epoch("us").to_numpy() / 1e6
    return make_requests(
        seconds - seconds[0] + 1e-3,
        rows["ContextTokens"].to_numpy().clip(1, 12_000),
        rows["GeneratedTokens"].to_numpy().clip(1, 4_000),
    )


def _servegen(clients: ServeGen, rng: np.random.Generator) -> Requests:
    start = float(rng.integers(7 * 24, 14 * 24 - 2)) * HOUR
    drawn = clients.requests(start, start + HOUR, rng, scale=1.0, fill_missing=True)
    return replace(
        drawn,
        prompt_tokens=drawn.prompt_tokens.clip(1, 12_000),
        generation_tokens=drawn.generation_tokens.clip(1, 4_000),
    )


def _at_load(
    requests: Requests, configuration: SchedulerConfiguration, step_time: StepTime, load: float
) -> Requests | None:
    """Thinned or repeated so that the hour asks for ``load`` of what the engine can finish."""
    some = requests.take(np.linspace(0, len(requests) - 1, min(len(requests), 1500)).astype(int))
    at_once = replace(some, arrival_seconds=np.zeros(len(some)))
    end = simulate(at_once, configuration, step_time).summary["end_seconds"]
    wanted = int(load * len(some) / float(end) * HOUR)
    if not 600 <= wanted <= 60_000:
        return None
    which = np.sort(np.random.default_rng(wanted).integers(0, len(requests), wanted))
    times = requests.arrival_seconds[which] / requests.arrival_seconds[-1] * (HOUR - 1.0)
    jitter = np.random.default_rng(wanted + 1).uniform(0, 1.0, wanted)
    order = np.argsort(times + jitter, kind="stable")
    return replace(requests.take(which[order]), arrival_seconds=(times + jitter)[order] + 1e-3)


def observed_of(case: Case) -> Observed:
    """The hour as its metrics tell it."""
    edges = _chunk_edges(case.requests, case.seconds)
    times = np.unique(np.concatenate([edges, np.arange(0.0, case.seconds + 1e-9, SCRAPE_SECONDS)]))
    run = _run(case, case.configuration, times)
    chunks = _chunks(run, edges, times)
    waiting = float((chunks["waiting_requests"] > 0.5).mean())  # type: ignore[arg-type]
    rng = np.random.default_rng(case.seed)
    return Observed(
        start=AT,
        seconds=case.seconds,
        requests=redrawn(case.requests, rng),
        source="metrics",
        chunks=chunks,
        busy_windows=int(case.seconds / 60),
        saturated=waiting > 0.5,
    )


def _chunk_edges(requests: Requests, seconds: float) -> np.ndarray:
    per_minute = np.histogram(requests.arrival_seconds, bins=np.arange(0.0, seconds + 1, 60.0))[0]
    enough = max(FIRST_TOKENS, len(requests) / MOST_CHUNKS)
    edges, held = [0.0], 0
    for minute, count in enumerate(per_minute):
        held += int(count)
        if held >= enough:
            edges.append((minute + 1) * 60.0)
            held = 0
    edges[-1] = seconds
    return np.array(edges)


def _run(case: Case, configuration: SchedulerConfiguration, times: np.ndarray) -> Outcome:
    return simulate(
        case.requests,
        configuration,
        case.step_time,
        disturbance=case.disturbance,
        seed=case.seed,
        observe=Observe(times),
        until_seconds=case.seconds,
    )


def _chunks(run: Outcome, edges: np.ndarray, times: np.ndarray) -> pl.DataFrame:
    scrapes, requests = run.scrapes, run.requests
    assert scrapes is not None
    at = np.searchsorted(times, edges)
    first = requests["first_token_seconds"].fill_null(np.inf).to_numpy()
    ended = requests["end_seconds"].fill_null(np.inf).to_numpy()
    ttft = requests["ttft_seconds"].fill_null(np.nan).to_numpy()
    queue = requests["queue_seconds"].fill_null(np.nan).to_numpy()
    rows = []
    for low, high, start, end in zip(at[:-1], at[1:], edges[:-1], edges[1:], strict=True):

        def grown(name: str, low: int = low, high: int = high) -> float:
            return float(scrapes[name][int(high)] - scrapes[name][int(low)])

        def gauge(name: str, low: int = low, high: int = high) -> float | None:
            return scrapes[name][int(low) + 1 : int(high) + 1].mean()  # type: ignore[return-value]

        came, done = (first > start) & (first <= end), (ended > start) & (ended <= end)
        tokens = grown("generation_tokens")
        rows.append(
            {
                "start_seconds": start,
                "end_seconds": end,
                "generation_tokens_per_second": tokens / (end - start),
                "first_tokens_per_second": came.sum() / (end - start),
                "finished_per_second": done.sum() / (end - start),
                "itl_seconds": grown("itl_seconds_sum") / max(grown("itl_seconds_count"), 1.0),
                "steps_per_generation_token": grown("steps_observed") / max(tokens, 1.0),
                "tokens_per_step": grown("iteration_tokens_sum")
                / max(grown("steps_observed"), 1.0),
                "ttft_seconds": float(ttft[came].mean()) if came.any() else None,
                "queue_seconds": float(queue[done].mean()) if done.any() else None,
                "prefill_seconds": float((ttft - queue)[done].mean()) if done.any() else None,
                "running_requests": gauge("running"),
                "waiting_requests": gauge("waiting_capacity"),
                "kv_cache_usage_ratio": gauge("kv_cache_usage_ratio"),
                "preemptions_per_second": grown("preemptions") / (end - start),
            }
        )
    return pl.DataFrame(rows, schema=CHUNK_SCHEMA)


def others(configuration: SchedulerConfiguration) -> Iterator[tuple[str, SchedulerConfiguration]]:
    """One knob at a time, four times up and down."""
    seqs, budget = configuration.max_num_seqs, configuration.max_num_batched_tokens
    for times in (0.25, 0.5, 2.0, 4.0):
        if (other := int(seqs * times)) >= 8 and other <= budget:
            yield f"max_num_seqs x{times:g}", replace(configuration, max_num_seqs=other)
    for times in (0.25, 4.0):
        if (other := int(budget * times)) >= max(seqs, 256):
            yield (
                f"max_num_batched_tokens x{times:g}",
                replace(configuration, max_num_batched_tokens=other),
            )


def measured(run: Outcome, seconds: float) -> dict[str, float]:
    """Means over so many seconds."""
    scrapes = run.scrapes
    assert scrapes is not None
    last = scrapes.tail(1)
    requests = run.requests
    waited = float(requests["queue_seconds"].mean() or 0.0)  # type: ignore[arg-type]
    return {
        "itl": float(last["itl_seconds_sum"][0]) / max(float(last["itl_seconds_count"][0]), 1.0),
        "tokens": float(last["generation_tokens"][0]) / seconds,
        "ttft": float(requests["ttft_seconds"].mean() or 0.0),  # type: ignore[arg-type]
        "waited": waited,
    }


def judge(case: Case, known: bool) -> tuple[Calibration, list[Forecast], float]:
    """Fit, and forecast the others on what was observed; processor seconds of the fit."""
    observed = observed_of(case)
    server = case.server if known else replace(case.server, model="acme/unheard-of")
    prior = prior_of(server, observed, case.configuration)
    begin = time.process_time()
    found = calibrate(observed, case.configuration, prior, at=AT, seed=case.seed)
    took = time.process_time() - begin
    ends = np.array([0.0, case.seconds])
    burst = with_bursts(observed, found.arrivals, seed=case.seed)
    made = []
    for knob, configuration in others(case.configuration):
        was = measured(_run(case, configuration, ends), case.seconds)
        said = [
            measured(
                simulate(
                    burst.requests,
                    configuration,
                    fit.step_time,
                    observe=Observe(ends),
                    until_seconds=case.seconds,
                ),
                case.seconds,
            )
            for fit in found.fits
        ]
        mean = {name: float(np.mean([one[name] for one in said])) for name in said[0]}
        made.append(Forecast(case.name, known, knob, mean, was))
    return found, made, took
