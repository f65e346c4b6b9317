"""Figures over cases, with 95 % intervals.

Cases are drawn one by one, so each is a block of its own. Shares of cases have Clopper's and
Pearson's exact interval (Biometrika 26, 1934); the captured gain, a quotient of sums, a bootstrap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from truth_judge.bootstrap import exact, ratio
from truth_judge.report import interval, table

from advice_truth.asked import CRASHED, HELPS, SHARE, Result

HURTS = 0.02
GOALS = {
    "gain_captured_ratio": ("attainable gain captured", "≥ 85 %"),
    "hurt_ratio": ("changes that hurt by more than 2 points", "≤ 1 %"),
    "in_vain_ratio": ("a change where none helps, a target missed", "≤ 5 %"),
    "in_vain_at_more_ratio": ("… nor at a quarter more requests, healthy servers too", "–"),
}


def figures(results: Sequence[Result]) -> dict[str, Any]:
    """The table of the issue, and what is behind it."""
    ordered = sorted(one.seconds for one in results)
    names = list(dict.fromkeys(name for one in results for name in one.answers))
    return {
        "cases": len(results),
        "some_knob_helps": sum(helps(one) for one in results),
        "target_missed": sum(one.today < SHARE for one in results),
        "advisers": {name: _of(name, results) for name in names},
        "interval_holds_ratio": share(_held(results)),
        "actions": dict(sorted(Counter(one.action for one in results).items())),
        "refused_by_gate": dict(sorted(Counter(o.gate for o in results if o.gate).items())),
        "crashed": sum(one.action == CRASHED for one in results),
        "seconds_median": float(np.median(ordered)) if ordered else None,
        "seconds_p95": float(np.quantile(ordered, 0.95)) if ordered else None,
        "seconds_max": ordered[-1] if ordered else None,
    }


def helps(one: Result) -> bool:
    """Whether some knob is worth anything, today's demand given."""
    return one.best - one.today >= HELPS


def _held(results: Sequence[Result]) -> list[bool]:
    """For each forecast whether the gain that came lies in its 80 % interval, to half a point."""
    return [
        one.gain[1] - 0.005 <= one.answers["driftwatch"].share - one.today <= one.gain[2] + 0.005
        for one in results
        if one.gain is not None
    ]


def _of(name: str, results: Sequence[Result]) -> dict[str, Any]:
    told = [one for one in results if one.answers[name].knobs]
    idle = [one for one in results if not helps(one)]
    helped = [one for one in results if helps(one)]

    def is_vain(one: Result) -> bool:
        answer = one.answers[name]
        more = (answer.more_share or 0.0) - (one.more_today or 0.0)
        return bool(answer.knobs) and more < HELPS

    return {
        "advised": len(told),
        "gain_captured_ratio": ratio(
            {(one.seed, one.number): _gain(one, name) for one in helped},
            {(one.seed, one.number): one.best - one.today for one in helped},
            seed=0,
            signed=True,
        ).as_json(),
        "hurt_ratio": share([_gain(one, name) < -HURTS for one in told]),
        "in_vain_ratio": share(
            [bool(one.answers[name].knobs) for one in idle if one.today < SHARE]
        ),
        "in_vain_at_more_ratio": share([is_vain(one) for one in idle]),
    }


def _gain(one: Result, name: str) -> float:
    return one.answers[name].share - one.today


def share(of: Sequence[bool]) -> dict[str, Any]:
    """How many of them, with the exact interval and the two counts."""
    return exact(sum(of), len(of)).as_json() | {"count": sum(of), "of": len(of)}


def text(found: Mapping[str, Any]) -> str:
    """For people."""
    of = found["advisers"]
    rows = [
        (words, goal, *(cell(one[name]) for one in of.values()))
        for name, (words, goal) in GOALS.items()
    ]
    seconds = [found[f"seconds_{name}"] for name in ("median", "p95", "max")]
    lines = [
        f"{found['cases']} cases; a target is missed in {found['target_missed']}, some knob helps "
        f"by 3 points in {found['some_knob_helps']}. In brackets: 95 % intervals.",
        "",
        *table(("figure", "goal", *of), rows),
        f"the 80 % interval of the gain holds what came: {cell(found['interval_holds_ratio'])}",
        "answers: "
        + ", ".join(f"{count} {action}" for action, count in found["actions"].items())
        + "; failed checks: "
        + (", ".join(f"{g} {n}" for g, n in found["refused_by_gate"].items()) or "none"),
        "advise(), processor seconds: "
        + ", ".join("–" if s is None else f"{s:.2f}" for s in seconds)
        + " (median, p95, worst)",
    ]
    return "\n".join(lines)


def cell(estimate: Mapping[str, Any]) -> str:
    """A figure with its interval, and with its counts where it is made of counts."""
    counts = f", {estimate['count']} of {estimate['of']}" if estimate.get("of") else ""
    return interval(estimate, "%") + counts


def line_of(one: Result) -> str:
    """A case on one line."""
    said = "; ".join(f"{name} {dict(a.knobs)} {a.share:.3f}" for name, a in one.answers.items())
    gain = "" if one.gain is None else " gain " + ", ".join(f"{100 * g:+.0f}" for g in one.gain)
    return (
        f"{one.seed}/{one.number} {one.action} today {one.today:.3f}{gain} | {said} | best "
        f"{one.best:.3f} {dict(one.best_knobs)} | {one.seconds:.2f}s n{one.requests} "
        f"{'' if one.known else 'B? '}| {one.about} | {one.gate or ''} {one.reason}"
    )
