"""A question → the whole answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from driftwatch.diagnose.not_a_knob import not_a_knob
from driftwatch.knobs import KNOBS
from driftwatch.model import Advice, Reason, Slo
from driftwatch.numbers import brief, change, knob, milliseconds, moment, percent, rate
from driftwatch.recommend.advice import (
    FIGURES,
    TOLERANCE,
    Answer,
    Candidate,
    GainRange,
    Gate,
    ModelCheck,
    Question,
    targets_of,
)
from driftwatch.recommend.alternatives import (
    REPLICAS,
    alternatives,
    asked_for,
    enough_replicas,
    meets,
)
from driftwatch.recommend.measured import by_measured_capacity, kv_binds, queue
from driftwatch.recommend.search import (
    MARGIN,
    TIES,
    Gain,
    Option,
    both_overloaded,
    chosen,
    finalists,
    gain_of,
    nearest,
)
from driftwatch.recommend.server import setting_of
from driftwatch.recommend.situation import (
    Insufficient,
    Situation,
    model_check,
    row_of,
    situation_of,
)
from driftwatch.recommend.verdict import (
    Case,
    changed,
    falls_short,
    keeps_time_per_token,
    no_action,
    no_change,
    why_no_knob,
    why_replicas,
)
from driftwatch.recommend.window import missed, nobody_waited, share_met
from driftwatch.recommend.words import aims, share_in_target, what_if_text
from driftwatch.simulate.hardware import Hardware

_FINALISTS = 3
CAPACITY_GAIN = 0.10  # of the capacity, where more than that of it is in use
_NEARLY = 0.8  # of the demand: a change for capacity must serve as much
_UNEXPLAINED = 0.1  # of the requests: if so many more miss than simulated, something else is slow
_LOADED = 0.9  # of the capacity: above it today's settings do not suffice for long


def advise(question: Question, *, hardware: Hardware | None = None, table: bool = True) -> Answer:
    """Whether a server's settings should change, with the numbers behind the answer.

    ``hardware``: GPUs and models by name; None = the shipped tables; ``table``: with the other
    settings that were simulated in ``candidates``; a page prints none of them. Raises
    WorkloadError: the request log contradicts the metrics.
    """
    answer = _without_queue(question, hardware, table=table)
    limit = None if answer.today is None else answer.today.capacity_requests_per_second
    text, wrong = queue(question, limit), answer.advice.wrong_if
    if text is None:
        return answer
    update = {"queue": text, "wrong_if": wrong and f"{wrong}, once the queue is empty"}
    return answer.model_copy(update={"advice": answer.advice.model_copy(update=update)})


def _without_queue(question: Question, hardware: Hardware | None, *, table: bool) -> Answer:
    slo, source = targets_of(question)
    answer = Answer(
        at=question.at, advice=_insufficient("none", "no verdict"), slo=slo, slo_source=source
    )
    engine = not_a_knob(question.evidence, question.leaf)
    if engine is not None:
        return answer.model_copy(update={"advice": engine})
    try:
        situation = situation_of(question, hardware)
    except Insufficient as error:
        return _without_situation(answer, question, error)
    answer = _described(answer, situation)
    check = model_check(situation.outlook.draws, situation.now)
    worst = sorted(check.compared, key=lambda name: -abs(check.compared[name].off_ratio))
    answer = answer.model_copy(
        update={"check": check, "gates": tuple(_check_gate(name, check) for name in worst)}
    )
    if check.refused:
        return _not_reproduced(answer, situation)
    return _simulated(answer, situation, table=table)


def _insufficient(gate: str, text: str) -> Advice:
    return Advice(action="insufficient", reason=Reason(gate, text))


def _without_situation(answer: Answer, question: Question, error: Insufficient) -> Answer:
    """The answer from minutes and evidence alone, where nothing can be simulated."""
    gates = (Gate(error.gate, False, error.message),)
    kv = kv_binds(question.evidence, question.leaf, error.message)
    recommendation = kv or _insufficient(error.gate, error.message)
    if kv is None and nobody_waited(question.minutes, answer.slo):
        reason = Reason("no_queue", "no request waited: no limit binds, and no knob can help")
        recommendation = Advice(action="no_action", reason=reason)
    return answer.model_copy(update={"advice": recommendation, "gates": gates})


def _described(answer: Answer, situation: Situation) -> Answer:
    """The answer with its inputs: step times, settings, window, load, notes."""
    demand = situation.demand
    settings, question = situation.settings.configurations, situation.question
    today = {}
    for name in KNOBS:
        values = {setting_of(one, name) for one in settings}
        value = values.pop() if len(values) == 1 else None
        if value:
            today[name] = value
    notes = list(situation.notes)
    if situation.slo is None:
        notes.append(
            "no latency target: judged by requests that wait at most 1 s for admission, "
            "capacity is what a full server serves"
        )
    return answer.model_copy(
        update={
            "step_time": situation.step_times.fit,
            "settings": today,
            "window_seconds": situation.now.seconds,
            "offered_requests_per_second": situation.offered,
            "traffic_of": question.traffic_of,
            "source": "metrics" if question.log is None else "request log",
            "requests": round(demand.requests_per_second * situation.now.seconds),
            "notes": tuple(notes),
            "contradiction": situation.settings.contradiction,
        }
    )


def _check_gate(name: str, check: ModelCheck) -> Gate:
    one = check.compared[name]
    text = milliseconds if name == "itl_seconds" else brief
    simulated = text(one.high)
    if text(one.low) != simulated:
        low = text(one.low)
        unit = " ms" if simulated.endswith(" ms") else ""
        simulated = f"{low.removesuffix(unit)} to {simulated}"
    off = f" ({change(1 + one.off_ratio)}, limit {percent(TOLERANCE)})"
    figures = f"{FIGURES[name]} {simulated} simulated, {text(one.observed)} observed{off}"
    return Gate(f"fit_{name.partition('_')[0]}", one.passed, figures)


def _not_reproduced(answer: Answer, situation: Situation) -> Answer:
    """Advise on a limit that is plainly full; else the simulation is too far off to advise."""
    question, why = situation.question, answer.gates[0].said
    kv = kv_binds(question.evidence, question.leaf, why)
    if kv is not None:
        return answer.model_copy(update={"advice": kv})
    measured = by_measured_capacity(situation, why)
    off = f"the simulation does not reproduce today: {why}"
    recommendation = measured or _insufficient(answer.gates[0].name, off)
    return answer.model_copy(update={"advice": recommendation})


def _most(case: Case) -> float:
    """The highest rate that is simulated, on the scale of the simulated capacities: a server that
    misses its targets below its own has less than they say.
    """
    limit, offered = case.today.capacity_requests_per_second, case.situation.offered
    off = 1.0 if case.is_in_target or not limit or not offered else max(1.0, limit / offered)
    return case.situation.most * off


def _simulated(answer: Answer, situation: Situation, *, table: bool) -> Answer:
    today = row_of(situation, {})
    if today.refused is not None:
        return answer.model_copy(update={"advice": _insufficient("settings", today.refused)})
    configurations = situation.settings.configurations
    gains = finalists(situation.sweep, situation.outlook, situation.settings, _FINALISTS)
    share = situation.slo.share if situation.slo else Slo().share
    # the minutes count misses of the pool's targets, not of those on the command line
    own = situation.question.slo_source != "command line"
    seen_missed = own and missed(situation.now)
    is_in_target = not seen_missed and (today.in_target_ratio or 0.0) >= share
    case = Case(situation, today, answer.check, is_in_target)
    options = _options(case, [gain for gain in gains if gain.is_worth_it])
    choice = chosen(options, configurations[0], _most(case))
    if choice is None:
        options, choice = _for_capacity(case, gains)
    rows = [today, *(one.row for one in options)] if table else []
    update = {"today": today, "candidates": tuple(rows)}
    answer = answer.model_copy(update={**update, "what_ifs": tuple(asked_for(situation, today))})
    if choice is not None:
        return _changed(answer, case, choice, table=table)
    used, met = case.utilization, share_met(situation.now, situation.slo)
    simulated = today.in_target_ratio or 0.0
    if met is not None and simulated >= share and met < share - _UNEXPLAINED:
        found = f"at most {percent(met)} of requests met {aims(situation.slo)}"
        why = f"{found}, simulated {percent(simulated)}"
        off = f"the simulation does not reproduce today: {why}"
        recommendation = _insufficient("fit_in_target", off)
        gate = Gate("fit_in_target", False, why)
        answer = answer.model_copy(update={"gates": (gate, *answer.gates)})
    elif is_in_target and (used is None or used < _LOADED):
        recommendation = no_action(case)
    else:
        more = enough_replicas(situation, today.capacity_requests_per_second)
        return _without_change(answer, case, (why_no_knob(case, gains), None), more)
    return answer.model_copy(update={"advice": recommendation})


def _options(case: Case, gains: Sequence[Gain]) -> list[Option]:
    limit = case.today.capacity_requests_per_second
    return [Option(gain, row_of(case.situation, gain.knobs, limit)) for gain in gains]


def _for_capacity(case: Case, gains: Sequence[Gain]) -> tuple[list[Option], Option | None]:
    """Where most of the capacity is in use: the options, and the one that serves a tenth more."""
    limit, used = case.today.capacity_requests_per_second, case.utilization
    if not limit or used is None or used <= MARGIN:
        return [], None
    options = _options(case, [gain for gain in gains if gain.serves])
    enough = max((1 + CAPACITY_GAIN) * limit, _NEARLY * case.situation.offered)
    larger = [one for one in options if (one.row.capacity_requests_per_second or 0.0) >= enough]
    configuration = case.situation.settings.configurations[0]
    return options, nearest(larger, configuration, case.situation.most)


def _changed(answer: Answer, case: Case, choice: Option, *, table: bool) -> Answer:
    """The change where it alone meets the targets; else replicas, with it where it saves some."""
    choice, replaced, why = _or_before(case, choice)
    gain, then = choice.gain, choice.row
    every = (*answer.candidates, *filter(None, (replaced, then))) if table else ()
    rows = {tuple(sorted(one.knobs.items())): one for one in every}
    answer = answer.model_copy(update={"candidates": tuple(rows.values())})
    alone, more = _replicas(case, then) if falls_short(case, then) else (None, None)
    if alone is not None and more is None:
        return _without_change(answer, case, why_replicas(case, choice), alone)
    low, high = gain.range
    return answer.model_copy(
        update={
            "advice": changed(case, then, gain, more, why),
            "advised": then,
            "gain": GainRange(gain.mean, low, high, gain.chance_of_harm),
            "what_ifs": (*answer.what_ifs, *filter(None, (alone, more))),
        }
    )


def _without_change(
    answer: Answer, case: Case, why: tuple[Reason, str | None], replicas: Candidate | None
) -> Answer:
    """What helps without a change of a setting, each simulated."""
    others = alternatives(case.situation, case.today)
    what_ifs = (*answer.what_ifs, *filter(None, (replicas,)), *others)
    advice = no_change(case, *why, replicas, others)
    return answer.model_copy(update={"advice": advice, "what_ifs": what_ifs})


def _replicas(case: Case, then: Candidate) -> tuple[Candidate | None, Candidate | None]:
    """The replicas that meet the targets with today's settings, and with the change.

    The first is None where none do, or the pool's size is unknown: then the change comes first. The
    second is None where the change saves no replica, or breaks the target per token.
    """
    situation, limit = case.situation, case.today.capacity_requests_per_second
    have, more = situation.question.replicas, then.capacity_requests_per_second
    alone = enough_replicas(situation, limit) if have else None
    if alone is None or not meets(situation, alone):
        return None, enough_replicas(situation, more, then.knobs)
    if alone.knobs[REPLICAS] <= (have or 1) + 1 or not keeps_time_per_token(case, then):
        return alone, None
    saving = enough_replicas(situation, more, then.knobs)
    if saving is None or not meets(situation, saving):
        return alone, None
    return alone, saving if saving.knobs[REPLICAS] < alone.knobs[REPLICAS] else None


def _or_before(case: Case, choice: Option) -> tuple[Option, Candidate | None, str | None]:
    """The choice; or what an open page advises, where the choice brings no more than :data:`TIES`
    over it, or no more capacity where neither keeps up, and it keeps the time per output token.

    Returns:
        The option that is advised, the row of the one that it replaces, and why.
    """
    situation, before = case.situation, case.situation.question.before
    if before is None or before.settings == case.now(before.settings):
        return choice, None, None
    at, knobs, best = situation.question.at, before.settings, choice.row
    earlier = before.at if before.at and before.at < at else None
    same = f"as advised {moment(earlier, at.date())}" if earlier else "as its page advises"
    if knobs == best.knobs:
        return choice, None, same if earlier else None
    row = row_of(situation, knobs, best.capacity_requests_per_second)
    if row.in_target_ratio is None:
        return choice, row, None
    is_cheap, tpot = keeps_time_per_token(case, row), row.tpot_p95_seconds
    is_alike = row.in_target_ratio >= (best.in_target_ratio or 0.0) - TIES
    if is_cheap and (is_alike or both_overloaded(row, best, situation.offered)):
        others = " and ".join(
            what_if_text(*one) for one in best.knobs.items() if one not in knobs.items()
        )
        limit = best.capacity_requests_per_second
        no_more = "brings no more" if is_alike or not limit else f"serves only {rate(limit)} too"
        why = f"{same}: {others or 'one knob'} {no_more}"
        return Option(gain_of(situation.outlook, knobs), row), best, why
    values = " and ".join(knob(value) for value in knobs.values())
    brings = share_in_target(row.in_target_ratio, situation.slo)
    if not is_cheap and tpot is not None:
        brings = f"TPOT p95 {milliseconds(tpot)}"
    return choice, row, f"with {values} now {brings}"
