"""The hidden engine: step times that no model of the detectors describes.

Its step-time model has CUDA-graph steps, a quadratic attention term, log-normal jitter of each
step, a slow first-order autoregressive wander, rare stalls, and the faults of the scenario. The
seed decides everything.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.fleet.scenario.demand import Change
from driftwatch.fleet.scenario.model import Engine, Fault, Pool, Scenario, Serving
from driftwatch.fleet.servers import concerns, generator
from driftwatch.fleet.traffic_source import source_of
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Disturbance
from driftwatch.simulate.hardware import gpu, model
from driftwatch.simulate.kv_cache import capture_sizes, memory_plan
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.roofline import attention_flops_per_pair, roofline
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import simulate

Floats = npt.NDArray[np.float64]

CAPTURE_SIZES = capture_sizes(256, 8192)  # vLLM's default sizes up to 512

_GRID_SECONDS = 30.0  # steps of the wander and the ramps
_STALL_SECONDS = (0.5, 5.0)
_DAY_SECONDS = 86_400.0
# Length of a hang without end: longer than any scenario, but finite so that its requests end
_ENDLESS_SECONDS = 1e8


def step_time_of(engine: Engine, pool: Pool, factor: float = 1.0) -> StepTime:
    """The step-time model of the pool's engines, times a factor.

    The roofline of GPU and model (:mod:`driftwatch.simulate.roofline`) times ``times_roofline``, or
    the given coefficients; above them the quadratic term of attention.
    """
    known_gpu, known_model = gpu(pool.gpu), model(pool.model)
    if engine.law is not None:
        base = StepTime(**engine.law.model_dump())
        scale = factor
    else:
        base = roofline(known_gpu, known_model, tensor_parallel=pool.gpus_per_replica)
        scale = factor * engine.times_roofline
    flops_per_second = known_gpu.flops_per_second() * pool.gpus_per_replica  # at peak
    pair = attention_flops_per_pair(known_model) / flops_per_second * engine.quadratic_ratio
    return StepTime(
        c0_seconds=base.c0_seconds * scale,
        c1_seconds_per_prefill_token=base.c1_seconds_per_prefill_token * scale,
        c2_seconds_per_decode_seq=base.c2_seconds_per_decode_seq * scale,
        c3_seconds_per_kv_token=base.c3_seconds_per_kv_token * scale,
        hinge_tokens=base.hinge_tokens,
        c4_seconds_per_prefill_pair=pair * scale,
        capture_sizes=CAPTURE_SIZES if engine.cuda_graphs else (),
    )


def disturbance_of(scenario: Scenario, seed: int, number: int) -> Disturbance:
    """Jitter, wander, stalls and faults of one server, over the whole scenario."""
    engine = scenario.engine
    times = np.arange(0.0, scenario.duration + _GRID_SECONDS, _GRID_SECONDS)
    own = [f for f in scenario.faults if concerns(f, number)]
    edges = [f.at for f in own if f.kind in ("slowdown", "clock_throttle")]
    edges += [f.until for f in own if f.until is not None and f.kind != "wedge"]
    times = np.unique(np.concatenate([times, np.array(edges, dtype=float)]))
    rng = generator(seed, "wander", number)
    factors = np.exp(wander(engine.wander_sd_ratio, engine.wander_correlation, times, rng))
    for fault in own:
        if fault.kind in ("slowdown", "clock_throttle"):
            factors *= factor_of(fault, fault.factor or 1.0, times)
    stalls, durations = _stalls(scenario, generator(seed, "stalls", number))
    wedges = [f for f in own if f.kind == "wedge"]
    at = np.concatenate([stalls, [f.at for f in wedges]])
    lasting = np.concatenate(
        [durations, [_ENDLESS_SECONDS if f.until is None else f.until - f.at for f in wedges]]
    )
    order = np.argsort(at, kind="stable")
    return Disturbance(
        jitter_sigma=engine.jitter_sigma,
        factor_seconds=times,
        factors=factors,
        stall_seconds=at[order],
        stall_durations_seconds=lasting[order],
    )


def wander(
    sd_ratio: float, correlation_seconds: float, times: Floats, rng: np.random.Generator
) -> Floats:
    """The logs of the factors of a slow wander: a stationary AR(1), mean factor 1.

    ``x[k+1] = rho x[k] + sqrt(1 - rho²) sd e`` with ``rho = exp(-dt / correlation)``: an
    Ornstein-Uhlenbeck process at the given times.
    """
    noise = rng.standard_normal(len(times))
    rho = np.exp(-np.diff(times) / correlation_seconds)
    logs = np.empty(len(times))
    logs[0] = now = sd_ratio * noise[0]
    for k, (keep, fresh) in enumerate(zip(rho, noise[1:], strict=True), start=1):
        now = keep * now + sd_ratio * np.sqrt(1.0 - keep * keep) * fresh
        logs[k] = now
    return logs - sd_ratio * sd_ratio / 2.0


def is_on(part: Fault | Change, times: Floats) -> npt.NDArray[np.bool_]:
    """Whether a fault or a change lasts at these times."""
    return (times >= part.at) & (times < (np.inf if part.until is None else part.until))


def factor_of(part: Fault | Change, factor: float, times: Floats) -> Floats:
    """A factor of a fault or a change at these times, with its ramp; 1 where it is not on."""
    if factor == 1.0:
        return np.ones(len(times))
    up = np.ones(len(times))
    if part.ramp:
        up = np.clip((times - part.at) / part.ramp, 0.0, 1.0)
    # 0 has no logarithm: such a change has no ramp
    grown = np.full(len(times), 0.0) if factor == 0.0 else np.exp(np.log(factor) * up)
    return np.where(is_on(part, times), grown, 1.0)


def clock_ratio(scenario: Scenario, number: int, times: Floats) -> Floats:
    """The SM clock over its usual value: a throttled GPU is slower by the same factor."""
    ratio = np.ones(len(times))
    for fault in scenario.faults:
        if fault.kind == "clock_throttle" and concerns(fault, number):
            ratio /= factor_of(fault, fault.factor or 1.0, times)
    return ratio


def since_start(whole: Disturbance, start_seconds: float) -> Disturbance:
    """The disturbance of a process that starts then, without the stalls and hangs before it."""
    after_start = whole.stall_seconds >= start_seconds
    return replace(
        whole,
        stall_seconds=whole.stall_seconds[after_start],
        stall_durations_seconds=whole.stall_durations_seconds[after_start],
    )


def is_wedged(
    scenario: Scenario, number: int, start_seconds: float, times: Floats
) -> npt.NDArray[np.bool_]:
    """Whether the engine of a process that started then hangs at these times."""
    wedged = np.zeros(len(times), dtype=bool)
    for fault in scenario.faults:
        if fault.kind == "wedge" and fault.at >= start_seconds and concerns(fault, number):
            wedged |= is_on(fault, times)
    return wedged


def _stalls(scenario: Scenario, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Poisson in time, log-uniform in length."""
    count = rng.poisson(scenario.engine.stalls_per_day * scenario.duration / _DAY_SECONDS)
    shortest, longest = np.log(_STALL_SECONDS)
    at = np.sort(rng.uniform(0.0, scenario.duration, count))
    return at, np.exp(rng.uniform(shortest, longest, count))


_REQUESTS = 400  # of a run that measures capacity; three batches where the cap is large
_MIDDLE = (0.2, 0.8)  # the rate is taken between these shares of the ended requests
_SPAN_SECONDS = 7 * 86_400.0  # requests are drawn from ServeGen's whole week


def configuration_of(scenario: Scenario, serving: Serving) -> SchedulerConfiguration:
    """The scheduler's settings; KV blocks fill the memory that the model leaves on the GPU."""
    pool = scenario.pool
    memory = memory_plan(
        gpu(pool.gpu),
        model(pool.model),
        block_size=serving.block_size,
        tensor_parallel=pool.gpus_per_replica,
        gpu_memory_utilization=0.9,
        max_num_seqs=serving.max_num_seqs,
        max_num_batched_tokens=serving.max_num_batched_tokens,
    )
    if memory.num_gpu_blocks < 2 and serving.num_gpu_blocks is None:
        fits = f"{pool.model} does not fit {pool.gpus_per_replica} × {pool.gpu}"
        raise ImpossibleConfiguration((fits,), help_text="raise pool.gpus_per_replica")
    return serving.configuration(memory.num_gpu_blocks)


@lru_cache(maxsize=64)
def capacity(scenario: Scenario) -> float:
    """Requests per second of one server at the settings it starts with.

    The same for every seed: it depends only on engine, settings and traffic.
    """
    traffic, configuration = scenario.traffic, configuration_of(scenario, scenario.pool.serving)
    rng = generator(0, "capacity")
    count = max(_REQUESTS, 3 * configuration.max_num_seqs)
    clocked = source_of(traffic).draw(float(count), 1, (0.0, _SPAN_SECONDS), rng)
    chosen = rng.permutation(len(clocked.at))[:count]
    most = scenario.pool.serving.max_model_len
    prompts = np.clip(clocked.prompt_tokens[chosen], 1, most - 1)
    cached = (prompts * traffic.prefix_hit_ratio).astype(np.int64)
    block = scenario.pool.serving.block_size
    requests = make_requests(
        np.zeros(len(prompts)),
        prompts,
        np.clip(clocked.generation_tokens[chosen], 1, most - prompts),
        cached_tokens=np.minimum(cached, prompts - 1) // block * block,
    )
    step_time = step_time_of(scenario.engine, scenario.pool)
    ended = simulate(requests, configuration, step_time).requests["end_seconds"].drop_nulls().sort()
    first, last = (int(share * (len(ended) - 1)) for share in _MIDDLE)
    return (last - first) / float(ended[last] - ended[first])
