"""A question → the whole answer: traffic, calibration, gates, sweep, verdict. Pure."""

from __future__ import annotations

from dataclasses import replace

from driftwatch.model import Reason, Recommendation
from driftwatch.recommend.advice import Advice, Candidate, Question
from driftwatch.recommend.candidates import (
    FP8_KV,
    PREFIX_HIT_RATIO,
    REPLICAS,
    Case,
    asked_for,
    candidate,
    fp8_kv,
    more_replicas,
    prefix_hits,
    replicas_needed,
    shedding,
    table_rows,
)
from driftwatch.recommend.gates import failed_first, met_in_window
from driftwatch.recommend.horizon import steady
from driftwatch.recommend.prepare import Prepared, Refused, prepare
from driftwatch.recommend.sweep import sweep
from driftwatch.recommend.traffic.observed import reference_requests
from driftwatch.recommend.verdict import CAPACITY_GAIN, changed, chosen, no_action, no_knob
from driftwatch.recommend.without_simulation import by_measured_capacity, not_a_knob, safe_change
from driftwatch.simulate.hardware import Hardware
from driftwatch.simulate.requests import Requests

_HALF_CACHED = 0.5
_MOST_MORE_REPLICAS = 8


def advise(question: Question, *, hardware: Hardware | None = None, table: bool = True) -> Advice:
    """Everything that can be said of a server's knobs.

    ``hardware``: GPUs and models by name; None = the shipped tables; ``table``: with every value of
    the knob in ``candidates``; a page prints none of them. Raises WorkloadError: the request log
    contradicts the metrics.
    """
    engine = not_a_knob(question)
    if engine is not None:
        return Advice(question.at, engine, slo=question.slo, slo_source=question.slo_source)
    prepared = prepare(question, hardware)
    if isinstance(prepared, Refused):
        return without_simulation(question, prepared, hardware)
    answer = answer_prepared(question, prepared, table=table)
    if answer.recommendation.action != "insufficient":
        return answer
    return by_measured_capacity(question, answer, prepared.observed)


def without_simulation(question: Question, refused: Refused, hardware: Hardware | None) -> Advice:
    """Where no simulation can be trusted: what the evidence alone says of the KV cache, what is
    safe, or how many replicas the demand needs.
    """
    if refused.advice.recommendation.action != "insufficient":
        return refused.advice
    bound_by_kv = kv_binds(question, refused.advice)
    if bound_by_kv is not refused.advice:
        return bound_by_kv
    safe = safe_change(question, refused.advice, refused.observed, hardware)
    if safe is not refused.advice:
        return safe
    return by_measured_capacity(question, refused.advice, refused.observed)


def kv_binds(question: Question, refused: Advice) -> Advice:
    """Where the evidence shows that KV binds, a refused simulation is no reason to say nothing."""
    binds = question.leaf == "kv_pressure" or question.evidence.get("binding_limit") == "kv_cache"
    preempted = (question.evidence.get("preemptions_per_second") or 0.0) > 0.0
    if refused.recommendation.action != "insufficient" or not (binds and preempted):
        return refused
    recommendation = Recommendation(
        "none",
        Reason(
            "kv_binds",
            "the KV cache is full and requests are preempted; never raise max_num_seqs. "
            f"Not simulated: {refused.recommendation.reason.text}",
        ),
        instead=("add replicas", "fp8 KV cache", "cache prefixes", "shorter contexts"),
    )
    return replace(refused, recommendation=recommendation)


def assess(question: Question) -> Advice:
    """Today alone: its simulation, its capacity, and that at the reference's lengths; no sweep.

    The recommendation is ``insufficient`` as :func:`advise` has it, else ``no_action`` without a
    verdict on knobs. Raises WorkloadError: the request log contradicts the metrics.
    """
    prepared = prepare(question, None)
    if isinstance(prepared, Refused):
        return prepared.advice
    case = _case(question, prepared)
    return replace(
        prepared.advice,
        recommendation=Recommendation(
            "no_action", Reason("capacity", "capacity alone was asked"), basis="simulation"
        ),
        today=case.today,
        capacity_reference_requests_per_second=case.reference_capacity,
    )


def _case(question: Question, prepared: Prepared) -> Case:
    ground, judged = prepared.ground, prepared.judged
    lasting = ground.judged.until_seconds
    offered = len(judged) / lasting if lasting else 0.0
    today = candidate(ground, {}, offered=offered, judged_requests=judged)
    reference = None
    as_pinned = reference_requests(prepared.observed, question.reference, seed=question.seed)
    if as_pinned is not None:
        then, _ = steady(replace(prepared.observed, requests=as_pinned), question.seed)
        reference = ground.capacity({}, then, today.capacity_requests_per_second).mean
    tokens = question.reference.get("reference_generation_tokens_per_second")
    return Case(
        ground,
        question.server.serving,
        today,
        offered,
        question.replicas,
        reference,
        tokens,
        not ground.ttft_compared,
        {} if ground.judged.slo is None else met_in_window(prepared.observed, ground.judged.slo),
    )


def answer_prepared(question: Question, prepared: Prepared, *, table: bool = True) -> Advice:
    """Sweep, what-ifs and verdict of a question whose gates have passed."""
    case = _case(question, prepared)
    ground, judged = prepared.ground, prepared.judged
    gains = [] if case.margin and ground.objective == "throughput" else sweep(ground)
    choice = chosen(case, prepared.observed, judged, gains, question.seed)
    advised, gates = choice.then, prepared.advice.gates
    what_ifs = _what_ifs(question, case, judged, needed=advised is None and not case.margin)
    if advised is not None and choice.gain is not None:
        recommendation = changed(case, advised, choice.gain)
    elif choice.gate is not None:
        gates = failed_first([choice.gate, *gates])
        recommendation = Recommendation("insufficient", Reason(choice.gate.name, choice.gate.said))
    elif case.margin or (case.is_in_target and (case.utilization or 1.0) < 1.0 - CAPACITY_GAIN):
        recommendation = no_action(case)
    else:
        recommendation = no_knob(case, what_ifs, gains, choice.breaks)
    rows = table_rows(case, judged, gains, advised) if table else ()
    return replace(
        prepared.advice,
        recommendation=recommendation,
        gates=gates,
        today=case.today,
        candidates=rows,
        what_ifs=tuple(what_ifs),
        advised=advised,
        capacity_reference_requests_per_second=case.reference_capacity,
        offered_requests_per_second=case.offered,
    )


def _what_ifs(question: Question, case: Case, judged: Requests, *, needed: bool) -> list[Candidate]:
    """What was asked for, and where no knob helps what does."""
    ground, today = case.ground, case.today
    candidates = asked_for(
        ground, question.what_if, judged, today=today, offered=case.offered, replicas=case.replicas
    )
    hit = case.ground.scenarios[0].configuration.enable_prefix_caching
    what_if = question.what_if
    if not case.margin and hit and what_if.get(PREFIX_HIT_RATIO) != _HALF_CACHED:
        candidates.append(prefix_hits(ground, judged, _HALF_CACHED, today))
    if needed:
        have = case.replicas or 1
        n = replicas_needed(today, case.offered, have)
        is_there = n is not None and round(what_if.get(REPLICAS, 0)) == n
        if n is not None and not is_there and have < n <= have + _MOST_MORE_REPLICAS * have:
            candidates.append(more_replicas(ground, today, case.offered, have, n))
        wider = None if what_if.get(FP8_KV) else fp8_kv(ground, judged, today)
        shed = shedding(ground, today, case.offered)
        candidates += [one for one in (wider, shed) if one is not None]
    return candidates
