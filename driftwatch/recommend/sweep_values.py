"""Which settings are worth a simulation: one knob at a time around today's, then pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import log2

from driftwatch.knobs import KNOBS
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

BUDGETS = KNOBS["max_num_batched_tokens"].values
SEQUENCES = KNOBS["max_num_seqs"].values
# times today's budget: no step has been longer
MOST_TIMES_BUDGET = 4
_STEPS = (0.5, 2.0, 4.0, 8.0)  # of a value that lies off the grid


def sequence_counts(today: int, peak: int | None = None) -> list[int]:
    """Values of max_num_seqs besides today's, each a CUDA-graph capture size, rising.

    ``peak``: most that hold a place where the cap does not bind; what is larger changes nothing.

    >>> sequence_counts(8, peak=40)
    [4, 16, 32, 64]
    """
    own = {capture_size_at_least(today * step) for step in _STEPS}
    counts = sorted({*SEQUENCES, *own} - {today})
    counts = [value for value in counts if value <= max(SEQUENCES[-1], today)]
    if peak is None:
        return counts
    larger = [value for value in counts if value > max(peak, today)]
    return [value for value in counts if value <= max(peak, today)] + larger[:1]


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


@dataclass(frozen=True, slots=True)
class Range:
    """What bounds the values of a knob that are worth a simulation."""

    today: SchedulerConfiguration
    budget_known: bool  # max_num_batched_tokens is read, not assumed: only then it is turned
    # most requests that hold a place where max_num_seqs does not bind; None = unknown
    peak: int | None = None
    longest_prompt: int = 0


def _active_counts(within: Range) -> list[int]:
    active, most = within.today.max_num_active_seqs, within.today.max_num_seqs
    return [] if active is None else [v for v in sequence_counts(active) if v <= most]


def _long_prefills(within: Range) -> list[int]:
    today = within.today
    most = min(today.max_num_batched_tokens, within.longest_prompt)
    values = KNOBS["long_prefill_token_threshold"].values
    return [v for v in values if v < most and v != today.long_prefill_token_threshold]


# knob → the values that a sweep simulates, in the order in which they are looked at
_VALUES: Mapping[str, Callable[[Range], list[int]]] = {
    "max_num_seqs": lambda r: sequence_counts(r.today.max_num_seqs, r.peak),
    "max_num_batched_tokens": lambda r: (
        token_budgets(r.today.max_num_batched_tokens) if r.budget_known else []
    ),
    "long_prefill_token_threshold": _long_prefills,
    "max_num_active_seqs": _active_counts,
}


def single_knobs(within: Range, only: str | None = None) -> list[Knobs]:
    """One knob at a time (``only`` this one), what vLLM would take."""
    candidates: list[Knobs] = [
        {name: float(value)}
        for name, values in _VALUES.items()
        if only in (None, name)
        for value in values(within)
    ]
    return [knobs for knobs in candidates if not refusal(within.today, knobs)]


def pairs(first: Iterable[Knobs], second: Iterable[Knobs]) -> list[Knobs]:
    """Two knobs at a time."""
    others = list(second)
    return [{**one, **other} for one in first for other in others]


def refusal(today: SchedulerConfiguration, knobs: Knobs) -> str | None:
    """Why vLLM would not start with them."""
    turned: dict[str, int] = {name: round(value) for name, value in knobs.items()}
    problems = replace(today, **turned).problems()  # type: ignore[arg-type]
    return "; ".join(problems) or None


def moved(today: SchedulerConfiguration, knobs: Knobs) -> float:
    """How far from today: knobs first, then doublings.

    Off (None or 0) to on counts as one doubling.
    """
    distance = 0.0
    for name, value in knobs.items():
        now = getattr(today, name) or 0
        distance += 100.0 + (abs(log2(value / now)) if now and value else 1.0)
    return distance
