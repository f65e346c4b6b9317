"""Which settings are worth a simulation: one knob at a time around today's, then pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import log2

from driftwatch.simulate.configuration import SchedulerConfiguration

# vLLM 0.32 config/vllm.py _set_cudagraph_sizes: 1, 2, 4, 8 to 248 in steps of 8, from 256 in steps
# of 16; a batch is padded up to the next one.
_SMALL_SIZES = (1, 2, 4)


def capture_size_at_least(requests: float) -> int:
    """The smallest CUDA-graph capture size that holds ``requests``.

    >>> capture_size_at_least(38.5), capture_size_at_least(249), capture_size_at_least(3)
    (40, 256, 4)
    """
    for size in _SMALL_SIZES:
        if requests <= size:
            return size
    step = 8 if requests <= 248 else 16
    return math.ceil(requests / step) * step


Knobs = Mapping[str, float]

BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
SEQUENCES = (16, 32, 64, 128, 256, 512, 1024)
_THRESHOLDS = (256, 512, 1024, 2048)
# times today's budget: no step has been longer
MOST_TIMES_BUDGET = 4
_STEPS = (0.5, 2.0, 4.0, 8.0)  # of a value that lies off the grid


def sequence_counts(today: int, peak: int | None = None) -> list[int]:
    """Values of max_num_seqs besides today's, each a CUDA-graph capture size, rising.

    Args:
        peak: most that hold a place where the cap does not bind; what is larger changes
            nothing.  >>> sequence_counts(8, peak=40) [4, 16, 32, 64]
    """
    own = {capture_size_at_least(today * step) for step in _STEPS}
    found = sorted({*SEQUENCES, *own} - {today})
    found = [value for value in found if value <= max(SEQUENCES[-1], today)]
    if peak is None:
        return found
    larger = [value for value in found if value > max(peak, today)]
    return [value for value in found if value <= max(peak, today)] + larger[:1]


def token_budgets(today: int) -> list[int]:
    """Values of max_num_batched_tokens besides today's, rising.

    >>> token_budgets(1024)
    [512, 2048, 4096]
    """
    own = {round(today * step) for step in (0.5, 2.0)}
    return sorted(
        value
        for value in {*BUDGETS, *own} - {today}
        if min(BUDGETS[0], today) <= value <= min(BUDGETS[-1], MOST_TIMES_BUDGET * today)
    )


def single_knobs(
    today: SchedulerConfiguration, *, budget_known: bool, peak: int | None = None
) -> list[Knobs]:
    """One knob at a time, what vLLM would take.

    Args:
        budget_known: max_num_batched_tokens is read and not assumed: only then it is turned.
        peak: see :func:`sequence_counts`.
    """
    found: list[Knobs] = [
        {"max_num_seqs": float(value)} for value in sequence_counts(today.max_num_seqs, peak)
    ]
    if budget_known:
        found += [
            {"max_num_batched_tokens": float(value)}
            for value in token_budgets(today.max_num_batched_tokens)
        ]
    return [knobs for knobs in found if accepted(today, knobs)]


def second_line(today: SchedulerConfiguration, longest_prompt: int) -> list[Knobs]:
    """Knobs that come after the two: prompts of several requests in a step, active sequences."""
    found: list[Knobs] = [
        {"long_prefill_token_threshold": float(value)}
        for value in _THRESHOLDS
        if value < min(today.max_num_batched_tokens, longest_prompt)
        and value != today.long_prefill_token_threshold
    ]
    active = today.max_num_active_seqs
    if active is not None:
        found += [
            {"max_num_active_seqs": float(value)}
            for value in sequence_counts(active)
            if value <= today.max_num_seqs
        ]
    return [knobs for knobs in found if accepted(today, knobs)]


def pairs(first: Iterable[Knobs], second: Iterable[Knobs]) -> list[Knobs]:
    """Two knobs at a time."""
    others = list(second)
    return [{**one, **other} for one in first for other in others]


def accepted(today: SchedulerConfiguration, knobs: Knobs) -> bool:
    """Whether vLLM would start with them."""
    return not refusal(today, knobs)


def refusal(today: SchedulerConfiguration, knobs: Knobs) -> str | None:
    """Why vLLM would not start with them."""
    turned: dict[str, int] = {name: round(value) for name, value in knobs.items()}
    problems = replace(today, **turned).problems()  # type: ignore[arg-type]
    return "; ".join(problems) or None


def moved(today: SchedulerConfiguration, knobs: Knobs) -> float:
    """How far from today: knobs first, then doublings.

    Off (None or 0) to on counts as one doubling.
    """
    found = 0.0
    for name, value in knobs.items():
        now = getattr(today, name) or 0
        found += 100.0 + (abs(log2(value / now)) if now and value else 1.0)
    return found
