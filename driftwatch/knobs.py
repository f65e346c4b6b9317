"""The scheduler settings of vLLM that driftwatch knows, one entry each.

Parsers of command lines and logs, what-ifs, tables, pages and advice read them here. An answer
turns those with ``values``. vLLM reads all of them at its start, so every change is a restart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Knob:
    """One scheduler setting."""

    name: str  # vLLM's argument in snake case, the same in ``SchedulerConfiguration``
    meaning: str  # what it bounds
    words: str  # how line 1 of a page calls it
    values: tuple[int, ...] = ()  # worth a simulation; empty where no answer turns it
    is_column: bool = False  # evidence has a column of it, and the command line an option
    can_be_off: bool = False  # 0 turns it off


_ALL = (
    Knob(
        "max_num_seqs",
        meaning="most requests that run at once",
        words="max_num_seqs",
        values=(16, 32, 64, 128, 256, 512, 1024),
        is_column=True,
    ),
    Knob(
        "max_num_batched_tokens",
        meaning="token budget of a step",
        words="token budget",
        values=(512, 1024, 2048, 4096, 8192, 16384),
        is_column=True,
    ),
    Knob(
        "max_num_active_seqs",
        meaning="admit only while fewer requests run",
        words="active requests",
        values=(16, 32, 64, 128, 256, 512, 1024),
    ),
    Knob(
        "long_prefill_token_threshold",
        meaning="most prompt tokens of one request in a step",
        words="long prefills",
        values=(256, 512, 1024, 2048),
        can_be_off=True,
    ),
    Knob(
        "max_num_queued_tokens",
        meaning="prompt tokens that may wait before requests are turned away",
        words="queued tokens",
        can_be_off=True,
    ),
)
KNOBS: Mapping[str, Knob] = {knob.name: knob for knob in _ALL}
# those with a column of evidence and an option on the command line
COLUMN_KNOBS: tuple[str, ...] = tuple(knob.name for knob in _ALL if knob.is_column)


def flag_of(name: str) -> str:
    """An argument as typed: ``--max-num-seqs``."""
    return f"--{name.replace('_', '-')}"


# vLLM books a prompt whole in one step, so that a minute's mean may lie a little above the budget.
_BOOKED_WHOLE = 1.05


def least_budget(tokens: float) -> int:
    """The token budget that steps of so many tokens prove: the engine has this one or a larger one.

    >>> least_budget(1284.0)
    1222
    """
    return math.floor(tokens / _BOOKED_WHOLE)


def assumed_budget(tokens: float, configured: float) -> float | None:
    """The smallest usual token budget, or multiple of the configured one, that such steps fit in.

    >>> assumed_budget(1284.0, 320.0), assumed_budget(2058.0, 512.0), assumed_budget(4e4, 512.0)
    (1280.0, 2048.0, None)
    """
    advised = (configured * step for step in (2, 4, 8))
    values = sorted({*KNOBS["max_num_batched_tokens"].values, *advised})
    return next((float(value) for value in values if value >= least_budget(tokens)), None)


def refusal(values: Mapping[str, float | None]) -> str | None:
    """Why vLLM would not start with these values; None where it would, or one is unknown.

    >>> refusal({"max_num_seqs": 64.0, "max_num_batched_tokens": 32.0})
    'max_num_batched_tokens 32 is below max_num_seqs 64: vLLM refuses to start'
    """
    seqs, budget = values.get("max_num_seqs"), values.get("max_num_batched_tokens")
    if seqs is None or budget is None or budget >= seqs:
        return None
    return (
        f"max_num_batched_tokens {budget:.0f} is below max_num_seqs {seqs:.0f}: "
        "vLLM refuses to start"
    )
