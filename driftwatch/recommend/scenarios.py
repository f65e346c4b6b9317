"""Scenarios that an answer must hold in: settings that may be today's, each with the step-time
models that fit, and the KV blocks that other settings leave.

vLLM measures its peak memory at max_num_batched_tokens tokens and max_num_seqs rows of logits and
gives the rest to the cache (``v1/worker/gpu_worker.py``). The observed block count is corrected by
the difference of two :func:`~driftwatch.simulate.kv_cache.memory_plan`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from driftwatch.errors import DriftwatchError
from driftwatch.knobs import KNOBS
from driftwatch.recommend.calibration.fits import Calibration, Fit
from driftwatch.recommend.traffic.observed import Observed, Server
from driftwatch.simulate.configuration import FCFS, PRIORITY, SchedulerConfiguration
from driftwatch.simulate.hardware import Hardware, shipped_hardware
from driftwatch.simulate.kv_cache import CACHE_DTYPES, MemoryPlan, memory_plan
from driftwatch.simulate.step_time import StepTime


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way the server may be."""

    configuration: SchedulerConfiguration
    step_time: StepTime
    variant: str
    fit: Fit | None = None  # where the step-time model comes from; None where it is given
    # prefix hits are taken as whole prompts of some requests, not as an equal part of each: which
    # of both it is no metric says
    whole_hits: bool = False
    # its step-time model is an end of the best fit's 80 % interval, and not a fit of its own: what
    # is possible, not what is likely
    is_end: bool = False

    @property
    def key(self) -> tuple[SchedulerConfiguration, StepTime, bool, float]:
        """All that a simulation depends on."""
        return self.configuration, self.step_time, self.whole_hits, self.ttft_overhead_seconds

    @property
    def ttft_overhead_seconds(self) -> float:
        """What passes outside the steps between a request's arrival and its first token."""
        return 0.0 if self.fit is None else self.fit.ttft_overhead_seconds


def scenarios_of(
    calibrated: Iterable[tuple[SchedulerConfiguration, Calibration]],
) -> list[Scenario]:
    """Every settings with every step-time model that was fitted under them, the best settings
    first.
    """
    ordered = sorted(calibrated, key=lambda one: one[1].best.loss)
    return [
        Scenario(configuration, fit.step_time, fit.variant, fit)
        for configuration, calibration in ordered
        for fit in calibration.fits
    ]


def between(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """The scenarios, and the slower and the faster step-time model of the best: 80 % lie between
    those two.
    """
    best = scenarios[0]
    if best.fit is None or best.fit.slower is None or best.fit.faster is None:
        return list(scenarios)
    step_times = {"slower": best.fit.slower, "faster": best.fit.faster}
    more = [
        replace(best, step_time=step_time, variant=f"{best.variant}, {name}", is_end=True)
        for name, step_time in step_times.items()
    ]
    return [*scenarios, *more]


def with_knobs(
    configuration: SchedulerConfiguration, knobs: Mapping[str, float], num_gpu_blocks: int | None
) -> SchedulerConfiguration:
    """Settings with some knobs turned, and the KV blocks that are left then."""
    turned: dict[str, Any] = {name: round(value) for name, value in knobs.items() if name in KNOBS}
    return replace(configuration, **turned, num_gpu_blocks=num_gpu_blocks)


def setting_of(configuration: SchedulerConfiguration, knob: str) -> float | None:
    """What a knob is today; None where it is off."""
    value = getattr(configuration, knob)
    return None if value is None else float(value)


BUDGETS = KNOBS["max_num_batched_tokens"].values
# vLLM 0.32 config/scheduler.py and config/cache.py; a CPU build and releases before 0.14 do not
# schedule ahead.
_DEFAULT_BLOCK_TOKENS = 16
_TRUE = ("true", "1")


@dataclass(frozen=True, slots=True)
class Settings:
    """What is known of today's settings."""

    # today's; several where one setting is unknown and an answer must hold for each value; empty
    # where something is missing that cannot be ranged over
    configurations: tuple[SchedulerConfiguration, ...]
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def configurations_of(server: Server, observed: Observed) -> Settings:
    """Today's settings of a server.

    ``observed``: its traffic: whether prefix hits were given, how much the KV cache held.
    """
    serving = server.serving
    if serving.max_num_seqs is None:
        return Settings((), (), ("max_num_seqs",))
    seqs = int(serving.max_num_seqs.value)
    notes = []
    active = serving.max_num_active_seqs
    if active is not None and active.value >= seqs:
        active = None
    if serving.max_num_batched_tokens is not None:
        budgets: tuple[int, ...] = (int(serving.max_num_batched_tokens.value),)
    else:
        budgets = tuple(budget for budget in BUDGETS if budget >= seqs) or (seqs,)
        notes.append(
            "max_num_batched_tokens is not given, so advice must hold for every value from "
            f"{budgets[0]:,} to {budgets[-1]:,}"
        )
    if server.block_size is None:
        notes.append(f"block size not given: vLLM's {_DEFAULT_BLOCK_TOKENS} tokens")
    if server.num_gpu_blocks is None:
        notes.append("number of KV blocks not given: simulated as if they never ran out")
    policy = server.flags.get("scheduling_policy", FCFS)
    if policy not in (FCFS, PRIORITY):
        notes.append(f"scheduling policy {policy!r} is simulated as {FCFS}")
        policy = FCFS
    return Settings(
        tuple(_configuration(server, observed, seqs, budget, policy) for budget in budgets),
        tuple(notes),
    )


def _configuration(
    server: Server, observed: Observed, seqs: int, budget: int, policy: str
) -> SchedulerConfiguration:
    serving = server.serving
    active, longest = serving.max_num_active_seqs, serving.max_model_len
    has_hits = bool((observed.requests.cached_tokens > 0).any())
    caching = has_hits or server.prefix_caching is not False
    chunked = _flag(server, "enable_chunked_prefill", True)
    flag = server.flags.get("long_prefill_token_threshold", "")
    setting = serving.setting("long_prefill_token_threshold")
    long_prefill = int(setting.value) if setting else 0
    max_model_len = None if longest is None else int(longest.value)
    if not chunked and max_model_len is not None and budget < max_model_len:
        chunked = True  # vLLM refuses to start so: what the server told is not of this engine
    return SchedulerConfiguration(
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        num_gpu_blocks=server.num_gpu_blocks,
        block_size=server.block_size or _DEFAULT_BLOCK_TOKENS,
        max_model_len=max_model_len,
        max_num_active_seqs=None if active is None or active.value >= seqs else int(active.value),
        long_prefill_token_threshold=int(flag) if flag.isdecimal() else long_prefill,
        enable_chunked_prefill=chunked,
        scheduling_policy=policy,
        enable_prefix_caching=caching,
        async_scheduling=_flag(server, "async_scheduling", (server.gpu or "").lower() != "cpu"),
    )


def _flag(server: Server, name: str, otherwise: bool) -> bool:
    value = server.flags.get(name)
    return otherwise if value is None else value.lower() in _TRUE


@dataclass(frozen=True, slots=True)
class BlockCount:
    """KV blocks with other knobs."""

    server: Server
    hardware: Hardware

    @classmethod
    def of(cls, server: Server, hardware: Hardware | None = None) -> BlockCount:
        """With the shipped tables where none are given."""
        return cls(server, shipped_hardware() if hardware is None else hardware)

    def after(self, today: SchedulerConfiguration, knobs: Mapping[str, float]) -> int | None:
        """Blocks with these knobs; today's where the memory is not known; None = unknown today.

        At least 1: a count that vLLM would refuse is refused by the configuration's own check.
        """
        blocks = today.num_gpu_blocks
        if blocks is None:
            return None
        before, then = self._plan(today, {}), self._plan(today, knobs)
        if before is None or then is None:
            return blocks
        more = (then.kv - before.kv) / (before.kv_per_token * before.block_size)
        return max(1, blocks + int(more // 1))

    @property
    def unknown(self) -> str | None:
        """Why the count is not corrected; None where it is."""
        why = "; ".join(self.lacking.values())
        return f"KV blocks not corrected for other settings: {why}" if why else None

    @property
    def lacking(self) -> Mapping[str, str]:
        """``model`` and ``GPU``, where the tables do not know it → why; empty = they know both."""
        _, no_gpu = self.hardware.find_gpu(self.server.gpu)
        _, no_model = self.hardware.find_model(self.server.model)
        return {name: why for name, why in (("model", no_model), ("GPU", no_gpu)) if why}

    def _plan(self, today: SchedulerConfiguration, knobs: Mapping[str, float]) -> MemoryPlan | None:
        server = self.server
        gpu, _ = self.hardware.find_gpu(server.gpu)
        model, _ = self.hardware.find_model(server.model)
        if gpu is None or model is None:
            return None
        cache = server.kv_cache_dtype or "auto"
        seqs = knobs.get("max_num_seqs", today.max_num_seqs)
        tokens = knobs.get("max_num_batched_tokens", today.max_num_batched_tokens)
        try:
            return memory_plan(
                gpu,
                model,
                max_num_seqs=round(seqs),
                max_num_batched_tokens=round(tokens),
                block_size=today.block_size,
                tensor_parallel=server.tensor_parallel or 1,
                gpu_memory_utilization=server.gpu_memory_utilization or 0.9,
                dtype_bytes=server.weight_bytes or model.weight_bytes_per_parameter or 2.0,
                kv_cache_dtype=cache if cache in CACHE_DTYPES else "auto",
            )
        except DriftwatchError:
            return None
