"""Today's scheduler settings as a replay needs them; what is unknown is ranged over or named."""

from __future__ import annotations

from dataclasses import dataclass

from driftwatch.recommend.observed.traffic import Observed
from driftwatch.recommend.server import Server
from driftwatch.simulate.configuration import FCFS, PRIORITY, SchedulerConfiguration

# vLLM's own defaults of max_num_batched_tokens and the powers of two people set (the sweep's).
BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
# vLLM 0.32 config/scheduler.py and config/cache.py; a CPU build and releases before 0.14 do not
# schedule ahead.
_DEFAULT_BLOCK_TOKENS = 16
_TRUE = ("true", "1")


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of today's settings.

    Attributes:
        configurations: today's; several where one setting is unknown and an answer must hold for
            each value; empty where something is missing that cannot be ranged over.
        notes: what was taken instead, in words.
        missing: names of settings without which nothing can be replayed.
    """

    configurations: tuple[SchedulerConfiguration, ...]
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def configurations_of(server: Server, observed: Observed) -> Known:
    """Today's settings of a server.

    Args:
        server: what is known of it.
        observed: its traffic: whether prefix hits were given, how much the KV cache held.
    """
    serving = server.serving
    if serving.max_num_seqs is None:
        return Known((), (), ("max_num_seqs",))
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
            "max_num_batched_tokens unknown: an answer must hold for each of "
            f"{budgets[0]:,} to {budgets[-1]:,}"
        )
    if server.block_size is None:
        notes.append(f"block size unknown: taken as vLLM's {_DEFAULT_BLOCK_TOKENS} tokens")
    if server.num_gpu_blocks is None:
        notes.append("KV blocks unknown: replayed as if they never ran out")
    policy = server.flags.get("scheduling_policy", FCFS)
    if policy not in (FCFS, PRIORITY):
        notes.append(f"scheduling policy {policy!r} is replayed as {FCFS}")
        policy = FCFS
    return Known(
        tuple(_configuration(server, observed, seqs, budget, policy) for budget in budgets),
        tuple(notes),
    )


def _configuration(
    server: Server, observed: Observed, seqs: int, budget: int, policy: str
) -> SchedulerConfiguration:
    serving = server.serving
    active, longest = serving.max_num_active_seqs, serving.max_model_len
    given = bool((observed.requests.cached_tokens > 0).any())
    caching = given or server.prefix_caching is not False
    chunked = _flag(server, "enable_chunked_prefill", True)
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
        long_prefill_token_threshold=_number(server, "long_prefill_token_threshold"),
        enable_chunked_prefill=chunked,
        scheduling_policy=policy,
        enable_prefix_caching=caching,
        async_scheduling=_flag(server, "async_scheduling", not _is_cpu(server)),
    )


def _flag(server: Server, name: str, otherwise: bool) -> bool:
    told = server.flags.get(name)
    return otherwise if told is None else told.lower() in _TRUE


def _number(server: Server, name: str) -> int:
    told = server.flags.get(name, "0")
    return int(told) if told.isdecimal() else 0


def _is_cpu(server: Server) -> bool:
    return server.gpu is not None and server.gpu.lower() == "cpu"
