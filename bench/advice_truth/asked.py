"""One case: asked, and set against what would have come of each answer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from truth_judge.whatif import ladder

from advice_truth.cases import Case
from advice_truth.shown import question_of
from advice_truth.truths import Truth
from driftwatch.knobs import KNOBS
from driftwatch.recommend.advice import Question
from driftwatch.recommend.advise import advise

SHARE = 0.95  # that shall be in target: below it somebody would have been paged
# A server above four fifths of its capacity is due for more; a quarter more requests fill it.
MORE_DEMAND = 1.25
HELPS = 0.03  # of the requests: less is no help
CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one adviser says, and what comes of it."""

    knobs: Mapping[str, float]
    share: float  # of the drift's requests in target
    more_share: float | None = None  # at a quarter more requests, where none helps today


@dataclass(frozen=True, slots=True)
class Result:
    """One case; ``best``: of the ladder and of every answer."""

    seed: int
    number: int
    today: float
    best: float
    best_knobs: Mapping[str, float]
    answers: Mapping[str, Answer]
    more_today: float | None
    action: str
    reason: str
    gate: str | None
    # mean, low and high of the gain as forecast
    gain: tuple[float, float, float] | None
    seconds: float
    requests: int
    known: bool
    about: str = field(repr=False)


def folk_rule(case: Case) -> dict[str, float]:
    """Prompts up: the budget doubled; generations or demand up: max_num_seqs doubled."""
    serving, (prompt, generation, rate) = case.scenario.pool.serving, case.drift
    if prompt >= max(generation, rate):
        return {"max_num_batched_tokens": 2.0 * serving.max_num_batched_tokens}
    doubled = 2 * serving.max_num_seqs
    return {"max_num_seqs": float(min(doubled, serving.max_num_batched_tokens))}


def closed_form(question: Question) -> dict[str, float]:
    """The limit that is full: max_num_seqs by Little's law, or twice the budget; no simulation."""
    evidence, serving = question.evidence, question.server.serving
    limit, budget = evidence.get("binding_limit"), serving.max_num_batched_tokens
    asked = evidence.get("binding_requests")
    if limit == "max_num_batched_tokens" and budget is not None:
        return {limit: min(2 * budget.value, KNOBS[limit].values[-1])}
    seqs = serving.max_num_seqs
    if limit != "max_num_seqs" or asked is None or seqs is None:
        return {}
    most = min(8 * seqs.value, KNOBS[limit].values[-1], budget.value if budget else 512)
    values = [v for v in KNOBS[limit].values if seqs.value < v <= most]
    fitting = [v for v in values if v >= max(2 * seqs.value, asked)]
    return {limit: float(fitting[0] if fitting else values[-1])} if values else {}


def result_of(seed: int, number: int, case: Case, truth: Truth) -> Result | None:
    """Ask and judge one case; None where the drift leaves nothing to judge."""
    today = truth.share({})
    if today is None:
        return None
    question = question_of(case)
    started, answer, crash = time.process_time(), None, ""
    try:
        answer = advise(question, table=False)
    except Exception as error:  # noqa: BLE001 that it breaks is a figure
        crash = f"{type(error).__name__}: {error}"
    seconds = time.process_time() - started
    moves = answer.advice.moves if answer else ()
    advised = {
        "driftwatch": {move.knob: move.to_value for move in moves},
        "closed form": closed_form(question),
        "folk rule": folk_rule(case),
    }
    shares = {json.dumps(one): truth.share(one) or 0.0 for one in ladder(case.scenario)}
    best = max(shares, key=lambda one: shares[one])
    then = {
        name: (truth.share(knobs) or 0.0) if knobs else today for name, knobs in advised.items()
    }
    most = max(shares[best], today, *then.values())
    idle = most - today < HELPS
    answers = {
        name: Answer(
            knobs,
            then[name],
            (truth.share(knobs, MORE_DEMAND) or 0.0) if idle and knobs else None,
        )
        for name, knobs in advised.items()
    }
    gain = answer.gain if answer else None
    failed = [gate.name for gate in answer.gates if not gate.passed] if answer else []
    return Result(
        seed,
        number,
        today,
        most,
        json.loads(best) if shares[best] > today else {},
        answers,
        (truth.share({}, MORE_DEMAND) or 0.0) if idle else None,
        answer.advice.action if answer else CRASHED,
        answer.advice.why if answer else crash,
        failed[0] if failed else None,
        None if gain is None else (gain.mean, gain.low, gain.high),
        seconds,
        answer.requests if answer else 0,
        case.knows_budget,
        _about(case),
    )


def _about(case: Case) -> str:
    pool, traffic = case.scenario.pool, case.scenario.traffic
    serving = pool.serving
    return (
        f"{pool.model} {pool.gpu} S {serving.max_num_seqs} B {serving.max_num_batched_tokens} "
        f"{traffic.source} x{case.drift} {traffic.requests_per_second or 0.0:.2f}/s "
        f"hits {traffic.prefix_hit_ratio}"
    )
