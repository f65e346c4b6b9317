"""Advice without a simulation: raise max_num_seqs or the token budget where it is plainly full.

max_num_seqs: mean of running and waiting requests while it is full (Little's law), between twice
and eight times today's, up to the next capture size, never above what KV cache, token budget and
TPOT target hold. Token budget: twice today's, where the TPOT target allows it. A step of m times
the work takes at most m times as long, so that the throughput cannot fall; the draws of the step
time say by how much it rises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftwatch.diagnose.limits import KV_PRESSED_RATIO
from driftwatch.model import Slo
from driftwatch.recommend.demand import Demand
from driftwatch.recommend.search import capture_size_at_least, sequence_counts
from driftwatch.recommend.server import BUDGETS, Server
from driftwatch.recommend.window import Window
from driftwatch.simulate.step_time import StepTime

SEQS, BUDGET = "max_num_seqs", "max_num_batched_tokens"
LEAST_GAIN = 0.10  # of the capacity, by the least favourable draw
_MOST_TIMES = {SEQS: 8.0, BUDGET: 2.0}
_MOST_TIMES_TPOT = 2.0  # without a target
_FULL_RATIO = 0.9  # of the budget: steps as large are full


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A larger value of the limit that is full."""

    knob: str
    today: float
    value: float
    # completions a second over today's, less 1: by the least and the most favourable draw
    gain_low: float
    gain_high: float
    waiting_requests: float
    kv_use_ratio: float

    @property
    def times(self) -> float:
        """The value over today's."""
        return self.value / self.today


def closed_form(
    evidence: Mapping[str, Any],
    server: Server,
    window: Window,
    demand: Demand,
    slo: Slo | None,
    draws: Sequence[StepTime],
) -> ClosedForm | None:
    """None where no limit is plainly full, something else is near, or it brings too little.

    ``draws``: models of the step time; without any there is no answer.
    """
    knob = evidence.get("binding_limit")
    setting = server.serving.setting(knob) if knob in (SEQS, BUDGET) else None
    running = evidence.get("binding_running_requests")
    waiting = evidence.get("binding_waiting_requests")
    kv, preempted = window.column("kv_cache_usage_ratio"), window.total("preemptions_total")
    if setting is None or running is None or not waiting or not draws or preempted != 0.0:
        return None
    if kv.size == 0 or not kv.max() < KV_PRESSED_RATIO:  # NaN: unknown
        return None
    most = min(
        _MOST_TIMES[knob or SEQS],
        KV_PRESSED_RATIO / max(float(kv.max()), 1e-9),
        _tpot_room(window, slo),
    )
    value = _value(knob or SEQS, setting.value, most, (running + waiting), server, window)
    if value is None:
        return None
    times, prefill = value / setting.value, _prefill_tokens(window)
    gains = [_gain(model, running, prefill, demand.context_tokens, times) for model in draws]
    if min(gains) < LEAST_GAIN:
        return None
    return ClosedForm(
        knob or SEQS, setting.value, value, min(gains), max(gains), waiting, float(kv.max())
    )


def _value(
    knob: str, today: float, most: float, requests: float, server: Server, window: Window
) -> float | None:
    """The value to set, at most so many times today's."""
    if knob == BUDGET:
        full = window.ratio("iteration_tokens_sum", "forward_passes")
        fits = most >= _MOST_TIMES[BUDGET] and full is not None and full >= _FULL_RATIO * today
        return 2 * today if fits and 2 * today <= BUDGETS[-1] else None
    budget = server.serving.max_num_batched_tokens
    room = BUDGETS[0] if budget is None else budget.value
    wanted = max(2 * today, capture_size_at_least(requests))
    values = [v for v in sequence_counts(int(today)) if today < v <= min(most * today, room)]
    larger = [value for value in values if value >= wanted]
    return float(larger[0] if larger else values[-1]) if values else None


def _tpot_room(window: Window, slo: Slo | None) -> float:
    """Times that the time between tokens may grow."""
    itl = window.ratio("tpot_seconds_sum", "tpot_seconds_count") or window.ratio(
        "itl_seconds_sum", "itl_seconds_count"
    )
    if slo is None or slo.tpot_seconds is None:
        return _MOST_TIMES_TPOT
    return slo.tpot_seconds / itl if itl else 1.0


def _prefill_tokens(window: Window) -> float:
    """Mean prompt tokens in a forward pass."""
    every = window.ratio("iteration_tokens_sum", "forward_passes") or 0.0
    return max(every - (window.ratio("generation_tokens_total", "forward_passes") or 0.0), 0.0)


def _gain(
    model: StepTime, running: float, prefill: float, context_tokens: float, times: float
) -> float:
    """Completions a second with so many times the work in a step, over those of now, less 1."""

    def seconds(many: float) -> float:
        decode = running * many
        return model.seconds(round(prefill * many), round(decode), round(decode * context_tokens))

    return times * seconds(1.0) / seconds(times) - 1.0
