"""One engine: its settings as the scheduler takes them, and its KV blocks with other settings.

vLLM measures its peak memory at max_num_batched_tokens tokens and max_num_seqs rows of logits and
gives the rest to the cache (``v1/worker/gpu_worker.py``). The observed block count is corrected by
the difference of two :func:`~driftwatch.simulate.kv_cache.memory_plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from driftwatch.errors import DriftwatchError
from driftwatch.knobs import KNOBS
from driftwatch.model import Serving
from driftwatch.simulate.configuration import FCFS, PRIORITY, SchedulerConfiguration
from driftwatch.simulate.hardware import Hardware
from driftwatch.simulate.kv_cache import CACHE_DTYPES, MemoryPlan, memory_plan

Knobs = Mapping[str, float]
BUDGETS = KNOBS["max_num_batched_tokens"].values
# vLLM 0.32 config/scheduler.py and config/cache.py; a CPU build and releases before 0.14 do not
# schedule ahead.
BLOCK_TOKENS = 16
_TRUE = ("true", "1")


@dataclass(frozen=True, slots=True)
class Server:
    """One engine, as it runs; None = unknown.

    ``serving`` has an inferred max_num_seqs among its settings; ``weight_bytes``: of one weight (2
    = bf16, 1 = fp8); ``num_gpu_blocks``: vLLM's null block included; ``flags``: other engine flags
    by vLLM's own name; one that is not there is unknown; ``unsupported``: features in use that are
    not simulated, in words.
    """

    serving: Serving = field(default_factory=Serving)
    model: str | None = None
    gpu: str | None = None
    gpus: float | None = None
    tensor_parallel: int | None = None
    weight_bytes: float | None = None
    kv_cache_dtype: str | None = None
    num_gpu_blocks: int | None = None
    block_size: int | None = None
    gpu_memory_utilization: float | None = None
    prefix_caching: bool | None = None
    release: str | None = None
    unsupported: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def block_tokens(self) -> int:
        """Tokens of a KV block; vLLM's default where unknown."""
        return self.block_size or BLOCK_TOKENS

    @property
    def longest(self) -> int | None:
        """max_model_len; None = unknown."""
        setting = self.serving.max_model_len
        return None if setting is None else int(setting.value)


@dataclass(frozen=True, slots=True)
class Settings:
    """Today's settings; several where max_num_batched_tokens is unknown."""

    configurations: tuple[SchedulerConfiguration, ...]
    notes: tuple[str, ...] = ()
    contradiction: str | None = None  # a configured setting that cannot be, and how to answer

    @property
    def budget_known(self) -> bool:
        """Whether max_num_batched_tokens is read, not assumed: only then it may change."""
        return len(self.configurations) == 1 and self.contradiction is None


def settings_of(server: Server) -> Settings | None:
    """Today's settings of a server; None without max_num_seqs."""
    serving = server.serving
    if serving.max_num_seqs is None:
        return None
    seqs, contradiction = int(serving.max_num_seqs.value), None
    notes = []
    if serving.max_num_batched_tokens is not None:
        given = serving.max_num_batched_tokens
        budgets: tuple[int, ...] = (int(given.value),)
        if given.provenance == "inferred":
            contradiction = (
                f"max_num_batched_tokens: {given.detail}, so {budgets[0]} is assumed; correct "
                "serving.max_num_batched_tokens of the pool, or give --startup-log FILE"
            )
    else:
        budgets = tuple(budget for budget in BUDGETS if budget >= seqs) or (seqs,)
        notes.append(
            f"max_num_batched_tokens is not given: {budgets[0]:,} to {budgets[-1]:,} are tried"
        )
    if server.block_size is None:
        notes.append(f"block size not given: vLLM's {BLOCK_TOKENS} tokens")
    if server.num_gpu_blocks is None:
        notes.append("number of KV blocks not given: simulated as if they never ran out")
    policy = server.flags.get("scheduling_policy", FCFS)
    if policy not in (FCFS, PRIORITY):
        notes.append(f"scheduling policy {policy!r} is simulated as {FCFS}")
        policy = FCFS
    configurations = tuple(_configuration(server, seqs, budget, policy) for budget in budgets)
    return Settings(configurations, tuple(notes), contradiction)


def _configuration(server: Server, seqs: int, budget: int, policy: str) -> SchedulerConfiguration:
    serving = server.serving
    active = serving.max_num_active_seqs
    chunked = _flag(server, "enable_chunked_prefill", True)
    flag = server.flags.get("long_prefill_token_threshold", "")
    threshold = serving.setting("long_prefill_token_threshold")
    if not chunked and server.longest is not None and budget < server.longest:
        chunked = True  # vLLM would not start without: the flag is of another engine
    return SchedulerConfiguration(
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        num_gpu_blocks=server.num_gpu_blocks,
        block_size=server.block_tokens,
        max_model_len=server.longest,
        max_num_active_seqs=None if active is None or active.value >= seqs else int(active.value),
        long_prefill_token_threshold=int(flag)
        if flag.isdecimal()
        else (int(threshold.value) if threshold else 0),
        enable_chunked_prefill=chunked,
        scheduling_policy=policy,
        enable_prefix_caching=server.prefix_caching is not False,
        async_scheduling=_flag(server, "async_scheduling", (server.gpu or "").lower() != "cpu"),
    )


def _flag(server: Server, name: str, otherwise: bool) -> bool:
    value = server.flags.get(name)
    return otherwise if value is None else value.lower() in _TRUE


def setting_of(configuration: SchedulerConfiguration, knob: str) -> float | None:
    """What a knob is today; None where it is off."""
    value = getattr(configuration, knob)
    return None if value is None else float(value)


def with_knobs(
    today: SchedulerConfiguration, knobs: Knobs, server: Server, hardware: Hardware
) -> SchedulerConfiguration:
    """Today's settings with other values of some knobs, and the KV blocks that are left then."""
    values: dict[str, Any] = {name: round(value) for name, value in knobs.items()}
    return replace(today, **values, num_gpu_blocks=blocks_after(today, knobs, server, hardware))


def blocks_after(
    today: SchedulerConfiguration, knobs: Knobs, server: Server, hardware: Hardware
) -> int | None:
    """KV blocks with these knobs; today's where the memory is not known; None = unknown today.

    At least 1: a count that vLLM would refuse is refused by the configuration's own check.
    """
    blocks = today.num_gpu_blocks
    if blocks is None or not knobs:
        return blocks
    before = _plan(today, {}, server, hardware)
    then = _plan(today, knobs, server, hardware)
    if before is None or then is None:
        return blocks
    more = (then.kv - before.kv) / (before.kv_per_token * before.block_size)
    return max(1, blocks + int(more // 1))


def _plan(
    today: SchedulerConfiguration, knobs: Knobs, server: Server, hardware: Hardware
) -> MemoryPlan | None:
    gpu, _ = hardware.find_gpu(server.gpu)
    model, _ = hardware.find_model(server.model)
    if gpu is None or model is None:
        return None
    cache = server.kv_cache_dtype or "auto"
    try:
        return memory_plan(
            gpu,
            model,
            max_num_seqs=round(knobs.get("max_num_seqs", today.max_num_seqs)),
            max_num_batched_tokens=round(
                knobs.get("max_num_batched_tokens", today.max_num_batched_tokens)
            ),
            block_size=today.block_size,
            tensor_parallel=server.tensor_parallel or 1,
            gpu_memory_utilization=server.gpu_memory_utilization or 0.9,
            dtype_bytes=server.weight_bytes or 2.0,
            kv_cache_dtype=cache if cache in CACHE_DTYPES else "auto",
        )
    except DriftwatchError:
        return None
