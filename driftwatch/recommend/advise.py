"""A question → the whole answer: traffic, calibration, gates, sweep, verdict. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from driftwatch.errors import NoVerdict
from driftwatch.model import Recommendation, Slo
from driftwatch.recommend.advice import Advice, Candidate, Gate, Question, SloSource
from driftwatch.recommend.calibration.fitted import Calibration
from driftwatch.recommend.candidates import candidate, capacity_of
from driftwatch.recommend.engine_first import not_a_knob
from driftwatch.recommend.gate_noise import spread_by_chance
from driftwatch.recommend.gates import (
    failed_first,
    fit_gates,
    identifiable_gate,
    is_queued,
    kv_gate,
    met_as_seen,
    nobody_waited,
    passing,
    server_gates,
    traffic_gates,
)
from driftwatch.recommend.kv_blocks import BlockCount
from driftwatch.recommend.laws_found import calibrated
from driftwatch.recommend.observed.from_log import observed_from_log
from driftwatch.recommend.observed.from_minutes import observed_from_minutes
from driftwatch.recommend.observed.reference import reference_requests
from driftwatch.recommend.observed.traffic import Observed
from driftwatch.recommend.replaying import Judged
from driftwatch.recommend.settings_known import Known, configurations_of
from driftwatch.recommend.steady import WARM_SHARE, steady
from driftwatch.recommend.sweep import Gain, Ground, sweep
from driftwatch.recommend.sweep_table import table_rows
from driftwatch.recommend.targets import targets_of
from driftwatch.recommend.unknown_hits import with_unknown_hits
from driftwatch.recommend.verdict import (
    CAPACITY_GAIN,
    Case,
    changed,
    more_capacity,
    no_action,
    no_knob,
    worth_it,
)
from driftwatch.recommend.what_ifs import (
    asked_for,
    fp8_kv,
    more_replicas,
    prefix_hits,
    replicas_needed,
    shedding,
)
from driftwatch.recommend.worlds import KNOBS, World, setting_of, worlds_of
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import Hardware
from driftwatch.simulate.requests import Requests

_HALF_CACHED = 0.5
_MOST_MORE_REPLICAS = 8


def advise(question: Question, *, hardware: Hardware | None = None) -> Advice:
    """Everything that can be said of a server's knobs.

    Args:
        question: what is known and asked.
        hardware: GPUs and models by name; None = the shipped tables.

    Raises:
        WorkloadError: the request log contradicts the metrics.
    """
    engine = not_a_knob(question)
    if engine is not None:
        return Advice(question.at, engine, slo=question.slo, slo_source=question.slo_source)
    prepared = _prepared(question, hardware)
    if isinstance(prepared, Advice):
        return prepared
    return _decided(question, prepared)


def assess(question: Question, *, hardware: Hardware | None = None) -> Advice:
    """Today alone: its replay, its capacity, and that at the reference's lengths; no sweep.

    The recommendation is ``insufficient`` as :func:`advise` has it, else ``no_action`` without a
    verdict on knobs.

    Raises:
        WorkloadError: the request log contradicts the metrics.
    """
    prepared = _prepared(question, hardware)
    if isinstance(prepared, Advice):
        return prepared
    case = _case(question, prepared)
    return replace(
        prepared.advice,
        recommendation=Recommendation(
            "no_action", reason="capacity alone was asked", basis="replay"
        ),
        today=case.today,
        capacity_reference_requests_per_second=case.reference_capacity,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """A question that can be answered.

    Attributes:
        advice: what is known so far.
        observed: the traffic.
        ground: of the sweep.
        judged: the traffic going on, on a clock of its own.
    """

    advice: Advice
    observed: Observed
    ground: Ground
    judged: Requests


def _prepared(question: Question, hardware: Hardware | None) -> _Prepared | Advice:
    """Traffic, settings, laws and gates; an answer at once where a gate fails."""
    slo, source = targets_of(question)
    advice = Advice(question.at, _insufficient(()), slo=slo, slo_source=source)
    try:
        observed = _observed(question)
    except NoVerdict as error:
        return _refused(advice, (Gate("traffic", False, error.message),))
    known = configurations_of(question.server, observed)
    advice = _so_far(advice, observed, known, slo, source)
    enough = traffic_gates(observed)
    gates = [*enough, *server_gates(question.server, known.missing)]
    idle = nobody_waited(observed, slo) and all(gate.passed for gate in enough)
    refused = _idle if idle else _refused
    if not all(gate.passed for gate in gates):
        return refused(advice, gates)
    found, failures = calibrated(question, observed, known, hardware)
    if not found:
        return refused(advice, [*gates, *failures])
    worlds = worlds_of(found)
    advice = replace(advice, calibration=_of(found, worlds[0]))
    kept, fit = _fitting(worlds, observed, question.seed)
    gates += [*fit, kv_gate(observed, worlds)]
    if advice.calibration is not None:
        gates.append(identifiable_gate(advice.calibration))
    if not kept or not all(gate.passed for gate in gates):
        return refused(advice, gates)
    blocks = BlockCount.of(question.server, hardware)
    going_on, lasting = steady(observed, question.seed)
    ground = Ground(
        kept,
        going_on,
        Judged(slo, WARM_SHARE * lasting, lasting),
        blocks,
        budget_known=question.server.serving.max_num_batched_tokens is not None,
        objective=question.objective,
    )
    ground, hits = with_unknown_hits(ground, observed, question.seed)
    gates.append(hits)
    if not hits.passed:
        return refused(advice, gates)
    notes = [*advice.notes, *([blocks.unknown] if blocks.unknown else [])]
    return _Prepared(
        replace(advice, gates=failed_first(gates), notes=tuple(notes)),
        observed,
        ground,
        going_on,
    )


def _observed(question: Question) -> Observed:
    if question.log is not None:
        return observed_from_log(
            question.log, question.minutes, question.server, seed=question.seed
        )
    return observed_from_minutes(question.minutes, question.server, seed=question.seed)


def _so_far(
    advice: Advice, observed: Observed, known: Known, slo: Slo | None, source: SloSource
) -> Advice:
    settings: dict[str, float] = {}
    if known.configurations:
        for name in KNOBS:
            values = {setting_of(one, name) for one in known.configurations}
            value = values.pop() if len(values) == 1 else None
            if value:
                settings[name] = value
    notes = [*observed.notes, *known.notes]
    if slo is None:
        notes.append("no latency target: judged by requests that wait at most 1 s for admission")
    elif source == "derived from the pin":
        notes.append("targets derived: twice the p95 of the pin")
    return replace(
        advice,
        settings=settings,
        window_seconds=observed.seconds,
        offered_requests_per_second=observed.offered_requests_per_second,
        source=observed.source,
        requests=len(observed.requests),
        notes=tuple(notes),
    )


def _of(found: Sequence[tuple[SchedulerConfiguration, Calibration]], world: World) -> Calibration:
    return next(made for _, made in found if world.fit in made.fits)


def _fitting(
    worlds: Sequence[World], observed: Observed, seed: int
) -> tuple[list[World], list[Gate]]:
    """The worlds whose replay of today is right, and what the gates say of the best of them."""
    queued, chance = is_queued(observed), None
    kept = passing(worlds, saturated=queued, observed=observed)
    if not kept:
        chance = spread_by_chance(observed, worlds[0], seed)
        kept = passing(worlds, saturated=queued, observed=observed, chance=chance)
    best = (kept or worlds)[0].fit
    if best is None:
        return kept, []
    return kept, fit_gates(best, saturated=queued, observed=observed, chance=chance)


def _case(question: Question, prepared: _Prepared) -> Case:
    ground, judged = prepared.ground, prepared.judged
    lasting = ground.judged.until_seconds
    offered = len(judged) / lasting if lasting else 0.0
    saturated = is_queued(prepared.observed) and prepared.observed.source == "metrics"
    today = candidate(ground, {}, offered=offered, saturated=saturated, judged_requests=judged)
    reference = None
    as_pinned = reference_requests(prepared.observed, question.reference, seed=question.seed)
    if as_pinned is not None:
        then, _ = steady(replace(prepared.observed, requests=as_pinned), question.seed)
        reference = capacity_of(ground, {}, then, today.capacity_requests_per_second).mean
    tokens = question.reference.get("reference_generation_tokens_per_second")
    return Case(
        ground,
        question.server.serving,
        today,
        offered,
        question.replicas,
        reference,
        tokens,
        saturated,
        None if ground.judged.slo is None else met_as_seen(prepared.observed, ground.judged.slo),
    )


def _decided(question: Question, prepared: _Prepared) -> Advice:
    case = _case(question, prepared)
    ground, judged = prepared.ground, prepared.judged
    gains = [] if case.margin and ground.objective == "throughput" else sweep(ground)
    advised = _chosen(case, judged, gains)
    what_ifs = _what_ifs(question, case, judged, needed=advised is None and not case.margin)
    if advised is not None:
        said = changed(case, advised, what_ifs)
    elif case.margin or (case.met and (case.utilization or 1.0) < 1.0 - CAPACITY_GAIN):
        said = no_action(case)
    else:
        said = no_knob(case, what_ifs)
    rows = table_rows(case, judged, gains, advised)
    return replace(
        prepared.advice,
        recommendation=said,
        today=case.today,
        candidates=rows,
        what_ifs=tuple(what_ifs),
        advised=advised,
        capacity_reference_requests_per_second=case.reference_capacity,
        offered_requests_per_second=case.offered,
    )


def _chosen(case: Case, judged: Requests, gains: Sequence[Gain]) -> Candidate | None:
    """The first that is worth a restart: by the share in target, else by the capacity."""
    near = case.today.capacity_requests_per_second
    for gain in gains:
        if worth_it(case.ground, gain):
            return candidate(
                case.ground,
                gain.knobs,
                offered=case.offered,
                saturated=False,
                judged_requests=judged,
                near=near,
            )
    if not case.met or case.margin:
        return None
    for gain in gains[:2]:
        found = candidate(
            case.ground,
            gain.knobs,
            offered=case.offered,
            saturated=False,
            judged_requests=judged,
            near=near,
        )
        if more_capacity(case.today, found):
            return found
    return None


def _what_ifs(question: Question, case: Case, judged: Requests, *, needed: bool) -> list[Candidate]:
    """What was asked for, and where no knob helps what does."""
    ground, today = case.ground, case.today
    near = today.capacity_requests_per_second
    found = asked_for(
        ground,
        question.what_if,
        judged,
        today=today,
        offered=case.offered,
        replicas=case.replicas,
    )
    hit = case.ground.worlds[0].configuration.enable_prefix_caching
    if not case.margin and hit:
        found.append(prefix_hits(ground, judged, _HALF_CACHED, near))
    if needed:
        have = case.replicas or 1
        n = replicas_needed(today, case.offered, have)
        if n is not None and have < n <= have + _MOST_MORE_REPLICAS * have:
            found.append(more_replicas(ground, today, case.offered, have, n))
        wider = fp8_kv(ground, judged, near)
        shed = shedding(ground, today, case.offered)
        found += [one for one in (wider, shed) if one is not None]
    return found


def _idle(advice: Advice, gates: Sequence[Gate]) -> Advice:
    """No limit binds where nobody waits, whatever a replay could say."""
    said = Recommendation(
        "no_action", reason="no request waited: no limit binds, and no knob can help"
    )
    return replace(advice, recommendation=said, gates=failed_first(gates))


def _insufficient(gates: Sequence[Gate]) -> Recommendation:
    failed = [gate.said for gate in gates if not gate.passed]
    return Recommendation("insufficient", reason=failed[0] if failed else "no verdict")


def _refused(advice: Advice, gates: Sequence[Gate]) -> Advice:
    return replace(advice, recommendation=_insufficient(gates), gates=failed_first(gates))
