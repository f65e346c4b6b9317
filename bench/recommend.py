"""Advice on random servers with hidden laws: gain captured, harm, refusals, and what it costs.

    python bench/recommend.py --seed 5 --cases 60 [--json FILE] [--list]

Each case is a server of the replayable fleet (step jitter, wander, stalls, CUDA-graph steps and a
quadratic attention term: a law that no variant of the calibration has) whose lengths or demand
drift. What advise() sees is what its pages show. Truth is the hidden engine run again with the
advised setting and with a ladder of one knob at a time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from advice_truth.cases import DRIFT_AT, LASTING, Case, case_of  # noqa: E402
from advice_truth.closed_form import closed_form  # noqa: E402
from advice_truth.shown import question_of  # noqa: E402
from truth_judge.whatif import Runs, ladder  # noqa: E402

from driftwatch.errors import ImpossibleConfiguration  # noqa: E402
from driftwatch.recommend.advice import Advice  # noqa: E402
from driftwatch.recommend.advise import advise  # noqa: E402

HELPS, HURTS = 0.03, 0.02
SHARE = 0.95  # that shall be in target: below it somebody would have been paged


@dataclass(frozen=True, slots=True)
class Result:
    """One case.

    Attributes:
        number: of the case.
        action: of the recommendation.
        reason: of the recommendation.
        gate: the first that failed.
        knobs: advised.
        today: true share in target with today's settings.
        advised: with the advised ones.
        best: of the ladder.
        folk: with the folk rule.
        formula: with the closed form.
        formula_knobs: of the closed form.
        forecast: share forecast with the advised ones.
        replayed: share of today by the replay.
        seconds: of advise().
        requests: replayed.
        known: max_num_batched_tokens was.
        best_knobs: of the ladder.
        about: the case in words.
    """

    number: int
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
    about: str


def folk_rule(case: Case) -> dict[str, int]:
    """Prompts up: the budget doubled; generations or demand up: max_num_seqs doubled."""
    serving, (prompt, generation, rate) = case.scenario.pool.serving, case.drift
    if prompt >= max(generation, rate):
        return {"max_num_batched_tokens": 2 * serving.max_num_batched_tokens}
    doubled = 2 * serving.max_num_seqs
    return {"max_num_seqs": min(doubled, serving.max_num_batched_tokens)}


def result_of(seed: int, number: int) -> Result | None:
    """Ask and judge one case; None where the drift leaves nothing to judge."""
    case = case_of(seed, number)
    question = question_of(case)
    advise(question) if number == 0 else None  # compiled once
    started = time.process_time()
    answer: Advice = advise(question)
    seconds = time.process_time() - started
    runs = Runs(case.scenario, case.seed, (DRIFT_AT, DRIFT_AT + LASTING), (0,))
    today = runs.share({})
    if today is None:
        return None

    def share(knobs: dict[str, int]) -> float:
        try:
            return runs.share(knobs) or 0.0
        except ImpossibleConfiguration:
            return 0.0

    shares = {json.dumps(k): share(dict(k)) for k in ladder(case.scenario)}
    best = max(shares, key=lambda k: shares[k])
    knobs = dict(answer.advised.knobs) if answer.advised else {}
    serving, pool = case.scenario.pool.serving, case.scenario.pool
    formula = closed_form(question.evidence, serving.max_num_seqs, serving.max_num_batched_tokens)
    failed = [gate.name for gate in answer.gates if not gate.passed]
    return Result(
        number,
        answer.recommendation.action,
        answer.recommendation.reason,
        failed[0] if failed else None,
        knobs,
        today,
        share({k: round(v) for k, v in knobs.items()}) if knobs else today,
        max(shares[best], today),
        share(folk_rule(case)),
        share(formula) if formula else today,
        formula,
        answer.advised.in_target_ratio if answer.advised else None,
        answer.today.in_target_ratio if answer.today else None,
        seconds,
        answer.requests,
        case.knows_budget,
        json.loads(best) if shares[best] > today else {},
        f"{pool.model} {pool.gpu} S {serving.max_num_seqs} B {serving.max_num_batched_tokens} "
        f"{case.scenario.traffic.source} x{case.drift} "
        f"{case.scenario.traffic.requests_per_second:.2f}/s hits "
        f"{case.scenario.traffic.prefix_hit_ratio}",
    )


def figures(results: list[Result]) -> dict[str, object]:
    """The table of the issue."""
    helped = [r for r in results if r.best - r.today >= HELPS]
    none_helps = [r for r in results if r.best - r.today < HELPS]
    told = [r for r in results if r.knobs]
    attainable = sum(r.best - r.today for r in helped)

    def share(count: int, of: int) -> float | None:
        return round(count / of, 4) if of else None

    def captured(of: str) -> float | None:
        gained = sum(getattr(r, of) - r.today for r in helped)
        return round(gained / attainable, 4) if attainable else None

    answered = [r for r in helped if r.action != "insufficient"]
    among = sum(r.best - r.today for r in answered)
    return {
        "cases": len(results),
        "some_knob_helps": len(helped),
        "advised": len(told),
        "gain_captured_ratio": captured("advised"),
        "gain_captured_where_answered_ratio": round(
            sum(r.advised - r.today for r in answered) / among, 4
        )
        if among
        else None,
        "folk_gain_captured_ratio": captured("folk"),
        "closed_form_gain_captured_ratio": captured("formula"),
        "hurt_ratio": share(sum(r.advised < r.today - HURTS for r in told), len(told)),
        "folk_hurt_ratio": share(sum(r.folk < r.today - HURTS for r in results), len(results)),
        "closed_form_hurt_ratio": share(
            sum(r.formula < r.today - HURTS for r in results if r.formula_knobs),
            sum(bool(r.formula_knobs) for r in results),
        ),
        "folk_knob_where_none_helps_ratio": 1.0,
        "closed_form_knob_where_none_helps_ratio": share(
            sum(bool(r.formula_knobs) for r in none_helps), len(none_helps)
        ),
        "knob_where_none_helps_ratio": share(
            sum(bool(r.knobs) for r in none_helps), len(none_helps)
        ),
        "pages": sum(r.today < SHARE for r in results),
        "knob_pages_where_none_helps_ratio": share(
            sum(bool(r.knobs) and r.today < SHARE for r in none_helps),
            sum(r.today < SHARE for r in none_helps),
        ),
        "actions": dict(Counter(r.action for r in results)),
        "refused_by_gate": dict(Counter(r.gate for r in results if r.gate)),
        "seconds_median": sorted(r.seconds for r in results)[len(results) // 2],
        "seconds_max": max(r.seconds for r in results),
    }


def line_of(one: Result) -> str:
    """A case on one line."""
    replayed = "" if one.replayed is None else f"replay {one.replayed:.3f}"
    replayed += "" if one.forecast is None else f" -> {one.forecast:.3f}"
    return (
        f"{one.number:3} {one.action:12} {one.knobs} {one.today:.3f} -> {one.advised:.3f} "
        f"({replayed}) best {one.best:.3f} {one.best_knobs} folk {one.folk:.3f} "
        f"{one.seconds:.2f}s n{one.requests} {'' if one.known else 'B? '}| {one.about} | "
        f"{one.gate or ''} {one.reason}"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--of", type=Path, nargs="+", help="figures of these files together")
    asked = parser.parse_args()
    if asked.of:
        told = [one for path in asked.of for one in json.loads(path.read_text())["results"]]
        print(json.dumps(figures([Result(**one) for one in told]), indent=1))
        return
    results = []
    for number in range(asked.first, asked.first + asked.cases):
        one = result_of(asked.seed, number)
        if one is None:
            continue
        results.append(one)
        if asked.list:
            print(line_of(one), flush=True)
        if asked.json is not None:  # after each: a run that is cut short has its figures
            made = {"figures": figures(results), "results": [asdict(one) for one in results]}
            asked.json.write_text(json.dumps(made, indent=1))
    print(json.dumps(figures(results), indent=1))


if __name__ == "__main__":
    main()
