"""Answers that need no simulation, or that stand where none can be trusted.

Before anything is simulated: the engine, its GPU or its router lost something, and a knob would
hide it. Where a simulation is refused: what a server with a lasting queue completes is its
capacity, and max_num_seqs may be raised where it binds and nothing else is near. A step of m times
the requests takes at most m times as long, so the throughput cannot fall and no figure of a request
grows by more than m; m is bounded by KV cache, token budget, TPOT target and demand of the window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from driftwatch.diagnose.limits import KV_PRESSED_RATIO
from driftwatch.model import Reason, Recommendation
from driftwatch.recommend.advice import Advice, Question
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.replicas import replicas_for
from driftwatch.recommend.scenarios import BUDGETS, configurations_of
from driftwatch.recommend.simulation import WAIT_SECONDS
from driftwatch.recommend.sweep import MOST_TIMES_TPOT
from driftwatch.recommend.sweep_values import capture_size_at_least, sequence_counts
from driftwatch.recommend.traffic.observed import Observed
from driftwatch.recommend.verdict import FAR_CAPACITY_GAIN
from driftwatch.recommend.words import add_replicas, aims, digits, percent, span
from driftwatch.simulate.hardware import Hardware
from driftwatch.simulate.step_time import StepTime

# leaf of the shipped trees → what the engine or its surroundings lost: a knob would hide it
_LEAVES = {
    "engine_stuck": "requests are present and no token comes",
    "version_change": "slower at equal load than before the release changed",
    "gpu_throttled": "slower at equal load with the GPU clock down",
    "spec_decode_acceptance_fell": "fewer drafted tokens are accepted than in the baseline",
    "prefix_cache_collapse": "prefix-cache hits fell, so that prompts are computed anew",
    "replica_slow": "slower at equal load than its peers",
    "scheduler_regression": "slower at equal load without a cause that is measured",
    "deferred_admission": "requests are deferred by LoRA slots, KV transfer or grammar",
    "replica_imbalance": "requests wait here while a peer has free slots",
}
_UNEXPLAINED = ("replica_slow", "scheduler_regression")
_SPEED, _PEERS = "speed_at_equal_load_ratio", "speed_against_pool_ratio"
_SPEED_OF = dict.fromkeys(("version_change", "gpu_throttled", "scheduler_regression"), _SPEED)
# Kinds of engines whose requests the simulation does not know.
_NOT_SIMULATED = {
    "pooling": "a pooling engine",
    "prefill_only": "a prefill-only engine",
    "decode_only": "a decode-only engine",
}
STUCK_SECONDS = 120.0  # as rules/engine-stuck.yaml has it
_DEFERRED_SHARE = 0.5  # of the scrapes of 10 minutes, as the tree asks


def not_a_knob(question: Question) -> Recommendation | None:
    """A verdict without a simulation where a knob cannot be the answer; None where it may be."""
    why = no_knob_because(question.evidence, question.leaf)
    if why is not None:
        return Recommendation("none", Reason("engine", why))
    kind = _NOT_SIMULATED.get(question.evidence.get("engine_kind") or "")
    if kind is not None:
        text = (
            f"not applicable: {kind}; the simulation knows engines that compute their prompts and "
        )
        return Recommendation("insufficient", Reason("engine_kind", f"{text}generate"))
    return None


def no_knob_because(evidence: Mapping[str, Any], leaf: str | None) -> str | None:
    """Why no knob can be the answer, by the evidence or by the leaf; None where one may be."""
    if lost := evidence.get("gpus_lost"):
        return f"{lost:.0f} GPU{'s are' if lost > 1 else ' is'} lost"
    if leaf in _LEAVES:
        column = _PEERS if leaf == "replica_slow" else _SPEED_OF.get(leaf)
        todo = "; look for what changed there, or drain it" if leaf in _UNEXPLAINED else ""
        return f"{_LEAVES[leaf]}{_by(evidence.get(column or ''))}{todo}"
    silent = evidence.get("seconds_since_last_token")
    if silent is not None and silent >= STUCK_SECONDS:
        return f"no token for {silent:.0f} s"
    for slower, text, column in (
        ("slower_at_equal_load", "slower at equal load", _SPEED),
        ("slower_than_pool", "slower than its peers", _PEERS),
    ):
        if evidence.get(slower):
            return f"{text}{_by(evidence.get(column))}"
    if evidence.get("engine_kind") == "decode_only":
        return None  # it waits for every request's KV cache: that is no cause
    deferred = evidence.get("waiting_deferred_share_10m_ratio")
    if evidence.get("binding_limit") == "deferred" or (
        deferred is not None and deferred >= _DEFERRED_SHARE
    ):
        return _LEAVES["deferred_admission"]
    return None


def _by(speed_ratio: float | None) -> str:
    return "" if speed_ratio is None else f": {100 * (1 - speed_ratio):.0f} %"


_QUEUED = 1.0  # mean of num_requests_waiting: no step lacked a request
_FEWEST_FINISHED = 100  # a rate known to ±20 % (Poisson, two standard deviations)
_FALLS_SHORT = 1.2  # times what it completes: as far as such a rate may be off


def by_measured_capacity(question: Question, refused: Advice, observed: Observed | None) -> Advice:
    """The refused answer with how many replicas serve the demand, where the window shows it."""
    if observed is None or not observed.saturated:
        return refused
    queued = observed.chunks.filter(pl.col("waiting_requests") >= _QUEUED)
    seconds = queued["end_seconds"] - queued["start_seconds"]
    finished = queued["finished_per_second"]
    if queued.is_empty() or finished.null_count():
        return refused
    completed = float((finished * seconds).sum())
    lasted = float(seconds.sum())
    arrived = observed.offered_requests_per_second
    if completed < _FEWEST_FINISHED or lasted <= 0:
        return refused
    capacity = completed / lasted
    if arrived < _FALLS_SHORT * capacity:
        return refused
    have = question.replicas or 1
    more = replicas_for(have * arrived, _most(finished, completed, lasted)) - have
    if more < 1:
        return refused  # it may complete all that arrive
    recommendation = Recommendation(
        "none",
        Reason(
            "measured",
            f"it completes {digits(capacity)} of the {digits(arrived)} req/s that arrive, with its "
            "queue never empty; whether a knob helps is unknown: "
            f"{refused.recommendation.reason.text}",
        ),
        instead=(
            f"{add_replicas(more, question.replicas, at_least=True)}: {digits(arrived)} req/s "
            f"arrive, one completes {digits(capacity)}",
        ),
        basis="measured",
    )
    return replace(refused, recommendation=recommendation)


def _most(finished: pl.Series, completed: float, lasted: float) -> float:
    """Requests a second that it may complete: two standard errors above what it did."""
    minutes = finished.std()
    wander = float(minutes) / math.sqrt(len(finished)) if isinstance(minutes, float) else 0.0
    return completed / lasted + 2 * max(math.sqrt(completed) / lasted, wander)


_SEQS = "max_num_seqs"


@dataclass(frozen=True, slots=True)
class Full:
    """What the minutes show while max_num_seqs is full; means, the KV cache's use at its most."""

    running: float
    demand: float
    kv_use: float
    tokens_a_step: float | None  # computed tokens of a forward pass; None = unknown
    context_tokens: float  # of a running request; None = unknown
    tpot_p95_seconds: float | None  # of the window; None = unknown


def safe_change(
    question: Question, refused: Advice, observed: Observed | None, hardware: Hardware | None
) -> Advice:
    """The refused answer with a safe change instead, where there is one.

    ``observed``: the traffic that was to be judged; None = it could not be rebuilt; ``hardware``:
    GPUs and models by name; None = the shipped tables.
    """
    serving = question.server.serving
    seqs = serving.max_num_seqs
    full = None if observed is None or seqs is None else _full(question, observed, seqs.value)
    if observed is None or seqs is None or full is None:
        return refused
    most = _most_times(question, full, seqs.value)
    values = [v for v in sequence_counts(int(seqs.value)) if 1.0 < v / seqs.value <= most]
    step_times = _step_times(question, refused, observed, hardware)
    if not values or not step_times:
        return refused
    value = values[-1]
    times = value / seqs.value
    gains = [_gain(step_time, full, times) for step_time in step_times]
    if min(gains) < FAR_CAPACITY_GAIN:
        return refused
    return replace(
        refused, recommendation=_safe_recommendation(question, refused, full, value, gains)
    )


def _full(question: Question, observed: Observed, seqs: float) -> Full | None:
    """None where max_num_seqs does not bind for sure, or something is unknown or near."""
    evidence, chunks = question.evidence, observed.chunks
    if evidence.get("binding_limit") != _SEQS or question.server.unsupported:
        return None
    preempted, kv = chunks["preemptions_per_second"], chunks["kv_cache_usage_ratio"]
    if preempted.null_count() or kv.null_count() or float(preempted.sum()) > 0.0:
        return None
    queued = chunks.filter(pl.col("waiting_requests") >= 1.0)
    running = evidence.get("binding_running_requests")
    waiting = evidence.get("binding_waiting_requests")
    if running is None or waiting is None or queued.is_empty():
        return None
    most = kv.max()
    use = float(most) if isinstance(most, int | float) else 1.0
    tokens = queued["tokens_per_step"].drop_nulls().mean()
    requests = observed.requests
    context = float(requests.prompt_tokens.mean()) + float(requests.generation_tokens.mean()) / 2
    return Full(
        max(float(running), 0.95 * seqs),
        float(running) + float(waiting),
        use,
        float(tokens) if isinstance(tokens, int | float) else None,
        context,
        observed.tpot_p95_seconds,
    )


def _most_times(question: Question, full: Full, seqs: float) -> float:
    """How many times max_num_seqs nothing else can bind or break, by what the window shows."""
    serving, slo = question.server.serving, question.slo
    bounds = [
        capture_size_at_least(full.demand) / seqs,
        KV_PRESSED_RATIO / full.kv_use if full.kv_use > 0 else float("inf"),
    ]
    budget = serving.max_num_batched_tokens
    bounds.append((BUDGETS[0] if budget is None else budget.value) / seqs)
    if budget is not None:
        if full.tokens_a_step is None:
            return 1.0
        bounds.append(budget.value / full.tokens_a_step)
    if slo is None or slo.tpot_seconds is None:
        bounds.append(MOST_TIMES_TPOT)
    elif full.tpot_p95_seconds is None:
        return 1.0
    else:
        bounds.append(slo.tpot_seconds / full.tpot_p95_seconds)
    return min(bounds)


def _step_times(
    question: Question, refused: Advice, observed: Observed, hardware: Hardware | None
) -> Sequence[StepTime]:
    """Every step-time model at hand: those fitted to the window, and the roofline's."""
    step_times = (
        [] if refused.calibration is None else [fit.step_time for fit in refused.calibration.fits]
    )
    settings = configurations_of(question.server, observed)
    if settings.configurations:
        prior = prior_of(question.server, observed, settings.configurations[-1], hardware=hardware)
        step_times += list(prior.step_times.values()) if prior.is_known else []
    return step_times


def _gain(step_time: StepTime, full: Full, times: float) -> float:
    """Completed requests a second with so many times the requests, over those of now, minus 1."""

    def step(many: float) -> float:
        decode = full.running * many
        prefill = max((full.tokens_a_step or full.running) - full.running, 0.0) * many
        return step_time.seconds(
            round(prefill), round(decode), round(decode * full.context_tokens), 0.0
        )

    return times * step(1.0) / step(times) - 1.0


def _safe_recommendation(
    question: Question, refused: Advice, full: Full, value: int, gains: Sequence[float]
) -> Recommendation:
    seqs = question.server.serving.max_num_seqs
    assert seqs is not None  # noqa: S101 - asked before
    times = value / seqs.value
    waiting = full.demand - full.running
    wait = f"queues longer than {WAIT_SECONDS:g} s"
    worse = wait if question.slo is None else f"misses {aims(question.slo, ' or ')}"
    return Recommendation(
        "change",
        Reason(
            "safe",
            f"{digits(waiting)} requests wait with {_SEQS} full and the KV cache at "
            f"{percent(full.kv_use)}; not simulated: {refused.recommendation.reason.text}",
        ),
        knob=_SEQS,
        from_value=seqs.value,
        from_provenance=seqs.provenance,
        to_value=float(value),
        price=(
            f"inter-token latency rises, to at most {times:.3g} times today's",
            f"KV cache {percent(full.kv_use)} → at most {percent(times * full.kv_use)}",
            "restart",
        ),
        undo=f"--max-num-seqs {seqs.value:.0f}",
        wrong_if=f"requests queue while fewer than {value} run, or a larger share than now {worse}",
        effect=(
            f"capacity {span(min(gains), max(gains))} by the step-time models; no forecast of the "
            "share in target",
        ),
        basis="closed form",
    )
