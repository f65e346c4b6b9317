"""Capacity arithmetic of one server: what fits its memory together, and how fast it then is.

Closed forms only; :mod:`driftwatch.simulate.demand` simulates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from driftwatch.simulate.hardware import Model
from driftwatch.simulate.kv_cache import MemoryPlan, held_tokens
from driftwatch.simulate.step_time import StepTime

Integers = npt.NDArray[np.int64]

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Lengths of the requests, one entry a request."""

    prompt_tokens: Integers  # at least 1 each
    generation_tokens: Integers  # at least 1 each

    @property
    def prompt_mean(self) -> float:
        """Tokens."""
        return float(self.prompt_tokens.mean())

    @property
    def generation_mean(self) -> float:
        """Tokens."""
        return float(self.generation_tokens.mean())

    @property
    def pairs_mean(self) -> float:
        """Pairs of prefill attention a prompt: E[P(P + 1)/2]."""
        prompt = self.prompt_tokens.astype(np.float64)
        return float((prompt * (prompt + 1) / 2).mean())

    @property
    def longest(self) -> int:
        """Prompt and generation of the longest request."""
        return int((self.prompt_tokens + self.generation_tokens).max())

    @property
    def context_mean(self) -> float:
        """Tokens of context of a request that runs, seen at a random moment.

        Those that generate long are seen longer: E[PG]/E[G] + E[G²]/(2·E[G]).
        """
        prompt = self.prompt_tokens.astype(np.float64)
        generation = self.generation_tokens.astype(np.float64)
        return float(
            (prompt * generation).mean() / generation.mean()
            + (generation**2).mean() / (2 * generation.mean())
        )


@dataclass(frozen=True, slots=True)
class Fits:
    """How many sequences the KV cache holds together, under four assumptions."""

    running: int  # as a running server has them, each at its own point of its generation
    mean_full: int  # every one a request of mean length at its end
    longest_full: int  # every one the longest of the mix, at its end: no preemption can happen
    reserved: int  # without paging, each reserving max_model_len
    resident_tokens: float  # KV tokens of a running sequence, half a block's waste included
    # of a reservation of max_model_len, what a running one leaves unused
    reserved_unused_ratio: float


def fits_together(plan: MemoryPlan, model: Model, mix: Mix, max_model_len: int) -> Fits:
    """The ceilings of the batch that the memory sets."""
    block, tokens = plan.block_size, plan.kv_tokens

    def whole(length: float) -> float:
        return math.ceil(held_tokens(model, length) / block) * block

    mean = mix.prompt_mean + mix.generation_mean
    resident = held_tokens(model, mix.context_mean) + block / 2
    return Fits(
        running=int(tokens / resident),
        mean_full=int(tokens / whole(mean)),
        longest_full=int(tokens / whole(mix.longest)),
        reserved=int(tokens / whole(max_model_len)),
        resident_tokens=resident,
        reserved_unused_ratio=max(0.0, 1 - resident / whole(max_model_len)),
    )


@dataclass(frozen=True, slots=True)
class BatchSpeed:
    """A server that keeps ``batch`` requests running."""

    batch: int  # requests that run together
    tokens_per_second: float  # generated, all together
    # mean time between two tokens of a request, with the prompts that such a server computes in
    # between
    itl_seconds: float
    decode_only_seconds: float  # of a step without prompts
    kv_bytes: float  # of one GPU
    fits: bool  # the KV cache holds them

    @property
    def tokens_per_second_per_user(self) -> float:
        """Of one request."""
        return 1 / self.itl_seconds


def batch_speed(
    batch: int, step_time: StepTime, mix: Mix, model: Model, plan: MemoryPlan, fits: Fits
) -> BatchSpeed:
    """Throughput and latency of a steady batch.

    Each step generates ``batch`` tokens, so ``batch`` / E[G] requests end in it and as many whole
    prompts are computed: of their tokens a hinge hides some (`hidden_tokens`), and a quadratic term
    costs E[P(P + 1)/2] pairs a prompt.
    """
    context = held_tokens(model, mix.context_mean)
    alone = step_time.seconds(0, batch, round(batch * context))
    starts = batch / mix.generation_mean  # prompts a step
    # with a prompt in the step, CUDA graphs pad nothing: the difference is below a size's width
    tokens = starts * mix.prompt_mean - hidden_tokens(
        mix.prompt_tokens, starts, step_time.hinge_tokens
    )
    step = (
        alone
        + step_time.c1_seconds_per_prefill_token * tokens
        + step_time.c4_seconds_per_prefill_pair * starts * mix.pairs_mean
    )
    return BatchSpeed(
        batch,
        batch / step,
        step,
        alone,
        batch * fits.resident_tokens * plan.kv_per_token,
        batch <= fits.running,
    )


def hidden_tokens(prompt_tokens: Integers, prompts_a_step: float, hinge_tokens: int) -> float:
    """Prompt tokens a step that cost nothing, where prompts come independently of each other.

    Their number in a step is Poisson; n prompts of P tokens hide min(n·P, hinge).
    """
    if hinge_tokens == 0:
        return 0.0
    lengths, counts = np.unique(np.minimum(prompt_tokens, hinge_tokens), return_counts=True)
    shares = counts / counts.sum()
    most = math.ceil(prompts_a_step + 10 * math.sqrt(prompts_a_step) + 10)
    chance, beyond, hidden = math.exp(-prompts_a_step), 1.0, 0.0
    for n in range(most):
        hidden += chance * float((shares * np.minimum(n * lengths, hinge_tokens)).sum())
        beyond -= chance
        chance *= prompts_a_step / (n + 1)
    return hidden + max(0.0, beyond) * hinge_tokens


def largest_batch(meets: Callable[[int], bool], most: int) -> int:
    """The largest batch up to ``most`` that meets a target which growing batches miss; 0: none."""
    if most < 1 or not meets(1):
        return 0
    low, high = 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def shown_batches(ceiling: int, most: int) -> Sequence[int]:
    """Powers of two up to ``most`` and the first above the ceiling, and the ceiling itself."""
    batches = {b for b in BATCHES if b <= min(most, max(1, 2 * ceiling))}
    if 1 <= ceiling <= most:
        batches.add(ceiling)
    return sorted(batches)


def cache_bytes(model: Model, plan: MemoryPlan, tokens: float) -> float:
    """KV bytes of one sequence of so many tokens on one GPU, without block rounding."""
    return held_tokens(model, tokens) * plan.kv_per_token
