"""One case: asked, and set against what would have come of each answer."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from truth_judge.whatif import ladder

from advice_truth.cases import Case
from advice_truth.closed_form import closed_form
from advice_truth.shown import question_of
from advice_truth.truths import Truth, named
from driftwatch.recommend.advice import Advice
from driftwatch.recommend.advise import advise

SHARE = 0.95  # that shall be in target: below it somebody would have been paged
# A server above four fifths of its capacity is due for more; a quarter more requests fill it.
MORE_DEMAND = 1.25
CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Result:
    """One case.

    Attributes:
        seed: of the case.
        number: of the case.
        case: what names it: two runs asked the same where it is the same.
        action: of the recommendation; ``crashed`` where there came none.
        reason: of the recommendation.
        gate: the first that failed.
        knobs: advised.
        today: true share in target with today's settings.
        advised: with the advised ones.
        best: of the ladder of single knobs, of today and of whatever somebody advised.
        folk: with the folk rule.
        formula: with the closed form.
        formula_knobs: of the closed form.
        forecast: share forecast with the advised ones.
        replayed: share of today by the replay.
        seconds: of advise(), processor time.
        requests: replayed.
        known: max_num_batched_tokens was.
        best_knobs: of the ladder; empty = none is better than today's.
        more_today: true share in target with today's settings and a quarter more requests; None
            where no knob was advised, or targets were missed already.
        more_advised: the same with the advised ones.
        about: the case in words.
    """

    seed: int
    number: int
    case: str
    action: str
    reason: str
    gate: str | None
    knobs: dict[str, float]
    today: float
    advised: float
    best: float
    folk: float
    formula: float
    formula_knobs: dict[str, int]
    forecast: float | None
    replayed: float | None
    seconds: float
    requests: int
    known: bool
    best_knobs: dict[str, float]
    more_today: float | None
    more_advised: float | None
    about: str


def folk_rule(case: Case) -> dict[str, int]:
    """Prompts up: the budget doubled; generations or demand up: max_num_seqs doubled."""
    serving, (prompt, generation, rate) = case.scenario.pool.serving, case.drift
    if prompt >= max(generation, rate):
        return {"max_num_batched_tokens": 2 * serving.max_num_batched_tokens}
    doubled = 2 * serving.max_num_seqs
    return {"max_num_seqs": min(doubled, serving.max_num_batched_tokens)}


def made_known(case: Case, truth: Truth) -> bool:
    """Ask the hidden engine all that no advice is needed for; whether there is one to judge."""
    if truth.share({}) is None:
        return False
    for knobs in (*ladder(case.scenario), folk_rule(case)):
        truth.share(knobs)
    return True


def result_of(seed: int, number: int, case: Case, truth: Truth) -> Result | None:
    """Ask and judge one case; None where the drift leaves nothing to judge."""
    today = truth.share({})
    if today is None:
        return None
    question = question_of(case)
    serving = case.scenario.pool.serving
    formula = closed_form(question.evidence, serving.max_num_seqs, serving.max_num_batched_tokens)
    started, answer, crash = time.process_time(), None, ""
    try:
        answer = advise(question)
    except Exception as error:  # noqa: BLE001 that it breaks is a figure
        crash = f"{type(error).__name__}: {error}"
    seconds = time.process_time() - started
    knobs = dict(answer.advised.knobs) if answer and answer.advised else {}

    def share(of: dict[str, int] | dict[str, float], demand: float = 1.0) -> float:
        return truth.share(of, demand) or 0.0

    shares = {json.dumps(one): share(dict(one)) for one in ladder(case.scenario)}
    best = max(shares, key=lambda one: shares[one])
    advised, folk, by_form = share(knobs), share(folk_rule(case)), share(formula)
    met = bool(knobs) and today >= SHARE
    return Result(
        seed,
        number,
        named(case),
        answer.recommendation.action if answer else CRASHED,
        answer.recommendation.why if answer else crash,
        _first_failed(answer),
        knobs,
        today,
        advised,
        max(shares[best], today, advised, folk, by_form),
        folk,
        by_form,
        formula,
        answer.advised.in_target_ratio if answer and answer.advised else None,
        answer.today.in_target_ratio if answer and answer.today else None,
        seconds,
        answer.requests if answer else 0,
        case.knows_budget,
        json.loads(best) if shares[best] > today else {},
        share({}, MORE_DEMAND) if met else None,
        share(knobs, MORE_DEMAND) if met else None,
        _about(case),
    )


def _first_failed(answer: Advice | None) -> str | None:
    failed = [gate.name for gate in answer.gates if not gate.passed] if answer else []
    return failed[0] if failed else None


def _about(case: Case) -> str:
    pool, traffic = case.scenario.pool, case.scenario.traffic
    serving = pool.serving
    return (
        f"{pool.model} {pool.gpu} S {serving.max_num_seqs} B {serving.max_num_batched_tokens} "
        f"{traffic.source} x{case.drift} {traffic.requests_per_second or 0.0:.2f}/s "
        f"hits {traffic.prefix_hit_ratio}"
    )
