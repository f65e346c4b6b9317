"""What may be advised where no replay can be trusted: a larger max_num_seqs, within bounds.

Raising max_num_seqs is safe where it binds and nothing else is near: a step of ``m`` times the
requests takes at most ``m`` times as long (its time is linear in what is in it, with a part of its
own), so the throughput cannot fall, and no figure of a request grows by more than ``m``. ``m`` is
bounded by what the window itself shows: the KV cache, the token budget, the TPOT target and the
demand. Nothing is forecast; the gain of capacity is that of the step-time models at hand, which
must agree that it is worth a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from driftwatch.diagnose.thresholds import KV_PRESSED_RATIO
from driftwatch.model import Reason, Recommendation
from driftwatch.recommend.advice import Advice, Question
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.closed_form import capture_size_at_least
from driftwatch.recommend.observed.traffic import Observed
from driftwatch.recommend.replaying import WAIT_SECONDS
from driftwatch.recommend.settings_known import BUDGETS, configurations_of
from driftwatch.recommend.sweep import MOST_TIMES_TPOT
from driftwatch.recommend.sweep_candidates import sequence_counts
from driftwatch.recommend.verdict import FAR_CAPACITY_GAIN
from driftwatch.recommend.wording import aims, digits, percent, span
from driftwatch.simulate.hardware import Hardware
from driftwatch.simulate.step_time import StepTime

_SEQS = "max_num_seqs"


@dataclass(frozen=True, slots=True)
class Full:
    """What the minutes show while max_num_seqs is full; means, the KV cache's use at its most.

    Attributes:
        running: requests.
        demand: running and waiting requests.
        kv_use: share of the KV cache.
        tokens_a_step: computed tokens of a forward pass; None = unknown.
        context_tokens: of a running request; None = unknown.
        tpot_p95_seconds: of the window; None = unknown.
    """

    running: float
    demand: float
    kv_use: float
    tokens_a_step: float | None
    context_tokens: float
    tpot_p95_seconds: float | None


def safe_change(
    question: Question, refused: Advice, observed: Observed | None, hardware: Hardware | None
) -> Advice:
    """The refused answer with a safe change instead, where there is one.

    Args:
        question: what was asked.
        refused: no verdict.
        observed: the traffic that was to be judged; None = it could not be rebuilt.
        hardware: GPUs and models by name; None = the shipped tables.
    """
    serving = question.server.serving
    seqs = serving.max_num_seqs
    full = None if observed is None or seqs is None else _full(question, observed, seqs.value)
    if observed is None or seqs is None or full is None:
        return refused
    most = _most_times(question, full, seqs.value)
    values = [v for v in sequence_counts(int(seqs.value)) if 1.0 < v / seqs.value <= most]
    laws = _laws(question, refused, observed, hardware)
    if not values or not laws:
        return refused
    value = values[-1]
    times = value / seqs.value
    gains = [_gain(law, full, times) for law in laws]
    if min(gains) < FAR_CAPACITY_GAIN:
        return refused
    return replace(refused, recommendation=_said(question, refused, full, value, gains))


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


def _laws(
    question: Question, refused: Advice, observed: Observed, hardware: Hardware | None
) -> Sequence[StepTime]:
    """Every step-time model at hand: those fitted to the window, and the roofline's."""
    found = [] if refused.calibration is None else [fit.law for fit in refused.calibration.fits]
    known = configurations_of(question.server, observed)
    if known.configurations:
        prior = prior_of(question.server, observed, known.configurations[-1], hardware=hardware)
        found += list(prior.laws.values()) if prior.known else []
    return found


def _gain(law: StepTime, full: Full, times: float) -> float:
    """Completed requests a second with so many times the requests, over those of now, minus 1."""

    def step(many: float) -> float:
        decode = full.running * many
        prefill = max((full.tokens_a_step or full.running) - full.running, 0.0) * many
        return law.seconds(round(prefill), round(decode), round(decode * full.context_tokens), 0.0)

    return times * step(1.0) / step(times) - 1.0


def _said(
    question: Question, refused: Advice, full: Full, value: int, gains: Sequence[float]
) -> Recommendation:
    seqs = question.server.serving.max_num_seqs
    assert seqs is not None  # noqa: S101 - asked before
    times = value / seqs.value
    waiting = full.demand - full.running
    aim = aims(question.slo) if question.slo is not None else f"a wait of {WAIT_SECONDS:g} s"
    return Recommendation(
        "change",
        Reason(
            "safe",
            f"{digits(waiting)} requests wait with {_SEQS} full and the KV cache at "
            f"{percent(full.kv_use)}; not replayed: {refused.recommendation.reason.text}",
        ),
        knob=_SEQS,
        from_value=seqs.value,
        from_provenance=seqs.provenance,
        to_value=float(value),
        price=(
            f"ITL at most ×{digits(times)}, how much is unknown",
            f"KV cache {percent(full.kv_use)} → at most {percent(times * full.kv_use)}",
            "restart",
        ),
        undo=f"--max-num-seqs {seqs.value:.0f}",
        wrong_if=f"requests still wait while fewer than {value} run, or more of them miss {aim}",
        effect=(
            f"capacity {span(min(gains), max(gains))} by the step-time models; share in target "
            "not forecast",
        ),
        basis="closed form",
    )
