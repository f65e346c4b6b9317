"""The scheduler's settings, under vLLM's own names, and the check of them.

It refuses what vLLM 0.32 refuses (``config/scheduler.py``), all problems at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from driftwatch.errors import ImpossibleConfiguration

FCFS, PRIORITY = "fcfs", "priority"


@dataclass(frozen=True, slots=True)
class SchedulerConfiguration:
    """One engine's scheduler settings."""

    max_num_seqs: int  # most requests in the running set
    max_num_batched_tokens: int  # token budget of a step
    # KV blocks, with vLLM's one null block; None = no limit
    num_gpu_blocks: int | None = None
    block_size: int = 16  # tokens of a KV block
    # most tokens of a request, prompt and generation; None = no limit
    max_model_len: int | None = None
    max_num_active_seqs: int | None = None  # admit only while fewer run; None = max_num_seqs
    long_prefill_token_threshold: int = 0  # most prefill tokens of one request in a step; 0 = off
    long_prefill_token_threshold_adaptive: bool = False  # at least an equal share of the budget
    enable_chunked_prefill: bool = True  # a prompt may be computed over several steps
    watermark: float = 0.0  # share of the blocks kept free at admission while something runs
    scheduler_reserve_full_isl: bool = True  # admit only where the whole input fits the free blocks
    scheduling_policy: str = FCFS  # ``fcfs`` or ``priority`` (lower first, ties by arrival)
    # requests with the same prefix reuse full blocks
    enable_prefix_caching: bool = True
    async_scheduling: bool = True  # schedule step k + 1 while step k runs (vLLM's default on GPUs)
    # answer 503 while this many requests wait or run; 0 = always, None = never
    max_num_queued_reqs: int | None = None
    # answer 503 while prompts without a first token, waiting or running, have this many tokens or
    # more; 0 = always, None = never
    max_num_queued_tokens: int | None = None
    # most different adapters among running requests; None = no limit
    max_loras: int | None = None

    def problems(self) -> tuple[str, ...]:
        """Why vLLM would refuse to start with these settings; empty where it would start."""
        problems = [
            f"{name} must be at least {least}, not {value}"
            for name, value, least in (
                ("max_num_seqs", self.max_num_seqs, 1),
                ("max_num_batched_tokens", self.max_num_batched_tokens, 1),
                ("block_size", self.block_size, 1),
                ("max_model_len", self.max_model_len, 1),
                ("max_num_active_seqs", self.max_num_active_seqs, 1),
                ("max_num_queued_reqs", self.max_num_queued_reqs, 0),
                ("max_num_queued_tokens", self.max_num_queued_tokens, 0),
                ("max_loras", self.max_loras, 1),
            )
            if value is not None and value < least
        ]
        if self.num_gpu_blocks is not None and self.num_gpu_blocks < 2:
            problems.append(
                f"num_gpu_blocks must be at least 2 (one is vLLM's null block), "
                f"not {self.num_gpu_blocks}"
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            problems.append(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) is below max_num_seqs "
                f"({self.max_num_seqs}): vLLM refuses to start"
            )
        if self.max_num_active_seqs is not None and self.max_num_active_seqs > self.max_num_seqs:
            problems.append(
                f"max_num_active_seqs ({self.max_num_active_seqs}) is above max_num_seqs "
                f"({self.max_num_seqs})"
            )
        if self.long_prefill_token_threshold < 0:
            problems.append("long_prefill_token_threshold must not be negative")
        if self.max_model_len is not None:
            if self.long_prefill_token_threshold > self.max_model_len:
                problems.append(
                    f"long_prefill_token_threshold ({self.long_prefill_token_threshold}) is above "
                    f"max_model_len ({self.max_model_len})"
                )
            if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
                problems.append(
                    f"max_num_batched_tokens ({self.max_num_batched_tokens}) is below "
                    f"max_model_len ({self.max_model_len}) and chunked prefill is off"
                )
        if not 0.0 <= self.watermark < 1.0:
            problems.append(f"watermark must be at least 0 and below 1, not {self.watermark}")
        if self.scheduling_policy not in (FCFS, PRIORITY):
            problems.append(
                f"scheduling_policy is fcfs or priority, not {self.scheduling_policy!r}"
            )
        return tuple(problems)

    def warnings(self) -> tuple[str, ...]:
        """Why a real server would not start, though its scheduler could run."""
        if self.num_gpu_blocks is None or self.max_model_len is None:
            return ()
        usable = (self.num_gpu_blocks - 1) * self.block_size
        if usable >= self.max_model_len:
            return ()
        return (
            f"the KV cache holds {usable:,} tokens and one request of max_model_len needs "
            f"{self.max_model_len:,}: a real server refuses to start",
        )

    def check(self) -> None:
        """Refuse what vLLM would refuse.

        Raises ImpossibleConfiguration: with every problem.
        """
        if problems := self.problems():
            raise ImpossibleConfiguration(problems)
