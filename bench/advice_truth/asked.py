"""One case: asked, and set against what would have come of each answer."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from truth_judge.whatif import ladder

from advice_truth.cases import Case
from advice_truth.shown import question_of
from advice_truth.truths import Truth
from driftwatch.recommend.advice import Advice
from driftwatch.recommend.advise import advise

SHARE = 0.95  # that shall be in target: below it somebody would have been paged
# A server above four fifths of its capacity is due for more; a quarter more requests fill it.
MORE_DEMAND = 1.25
CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Result:
    """One case."""

    seed: int
    number: int
    action: str
    reason: str
    gate: str | None
    knobs: dict[str, float]
    today: float
    advised: float
    best: float
    folk: float
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


def result_of(seed: int, number: int, case: Case, truth: Truth) -> Result | None:
    """Ask and judge one case; None where the drift leaves nothing to judge."""
    today = truth.share({})
    if today is None:
        return None
    question = question_of(case)
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
    advised, folk = share(knobs), share(folk_rule(case))
    met = bool(knobs) and today >= SHARE
    return Result(
        seed,
        number,
        answer.recommendation.action if answer else CRASHED,
        answer.recommendation.why if answer else crash,
        _first_failed(answer),
        knobs,
        today,
        advised,
        max(shares[best], today, advised, folk),
        folk,
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
