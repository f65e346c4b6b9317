"""Figures over cases, with 95 % intervals.

Cases are drawn one by one, so each is a block of its own. Shares of cases have Clopper's and
Pearson's exact interval (Biometrika 26, 1934); the captured gain, a quotient of sums, a bootstrap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from truth_judge.bootstrap import exact, ratio
from truth_judge.report import interval, table

from advice_truth.asked import CRASHED, SHARE, Result

HELPS, HURTS = 0.03, 0.02
ADVISERS = {"driftwatch": "advised", "folk rule": "folk"}
GOALS = {
    "gain_captured_ratio": ("attainable gain captured", "≥ 90 %"),
    "hurt_ratio": ("changes that hurt by more than 2 points", "≤ 1 %"),
    "knob_pages_where_none_helps_ratio": ("a knob where none helps, a target missed", "≤ 2 %"),
    "knob_where_none_helps_ratio": ("… healthy servers included", "≤ 2 %"),
}


def figures(results: Sequence[Result]) -> dict[str, Any]:
    """The table of the issue, and what is behind it."""
    helped = [one for one in results if helps(one)]
    ordered = sorted(one.seconds for one in results)
    more = [one for one in results if one.more_today is not None]
    return {
        "cases": len(results),
        "some_knob_helps": len(helped),
        "target_missed": sum(one.today < SHARE for one in results),
        "advisers": {name: _of(name, results) for name in ADVISERS},
        "gain_captured_where_answered_ratio": _captured(
            [one for one in helped if one.action not in ("insufficient", CRASHED)], "advised"
        ),
        # of changes where targets were met: what they are worth at a quarter more requests
        "capacity_changes": len(more),
        "capacity_changes_that_help_ratio": share(
            [(one.more_advised or 0.0) - (one.more_today or 0.0) >= HELPS for one in more]
        ),
        "actions": dict(sorted(Counter(one.action for one in results).items())),
        "refused_by_gate": dict(sorted(Counter(o.gate for o in results if o.gate).items())),
        "crashed": sum(one.action == CRASHED for one in results),
        "seconds_median": float(np.median(ordered)) if ordered else None,
        "seconds_p90": float(np.quantile(ordered, 0.9)) if ordered else None,
        "seconds_max": ordered[-1] if ordered else None,
    }


def helps(one: Result) -> bool:
    """Whether some knob is worth anything, today's demand given."""
    return one.best - one.today >= HELPS


def _of(name: str, results: Sequence[Result]) -> dict[str, Any]:
    field, turned = ADVISERS[name], _turned(name)
    told = [one for one in results if turned(one)]
    idle = [one for one in results if not helps(one)]
    return {
        "advised": len(told),
        "gain_captured_ratio": _captured([one for one in results if helps(one)], field),
        "hurt_ratio": share([_gain(one, field) < -HURTS for one in told]),
        "knob_pages_where_none_helps_ratio": share(
            [turned(one) for one in idle if one.today < SHARE]
        ),
        "knob_where_none_helps_ratio": share([turned(one) for one in idle]),
    }


def _turned(name: str) -> Callable[[Result], bool]:
    """Whether an adviser turned a knob; the folk rule always does."""
    return (lambda one: bool(one.knobs)) if name == "driftwatch" else (lambda _: True)


def _gain(one: Result, field: str) -> float:
    return float(getattr(one, field)) - one.today


def _captured(helped: Sequence[Result], field: str) -> dict[str, Any]:
    return ratio(
        {(one.seed, one.number): _gain(one, field) for one in helped},
        {(one.seed, one.number): one.best - one.today for one in helped},
        seed=0,
        signed=True,
    ).as_json()


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
    seconds = [found[f"seconds_{name}"] for name in ("median", "p90", "max")]
    lines = [
        f"{found['cases']} cases; a target is missed in {found['target_missed']}, some knob helps "
        f"by 3 points in {found['some_knob_helps']}. In brackets: 95 % intervals.",
        "",
        *table(("figure", "goal", *of), rows),
        "gain captured where it answered: "
        + cell(found["gain_captured_where_answered_ratio"])
        + "; changes for capacity that help at a quarter more requests: "
        + cell(found["capacity_changes_that_help_ratio"]),
        "answers: "
        + ", ".join(f"{count} {action}" for action, count in found["actions"].items())
        + "; refused by "
        + (", ".join(f"{g} {n}" for g, n in found["refused_by_gate"].items()) or "no gate"),
        "advise(), processor seconds: "
        + ", ".join("–" if s is None else f"{s:.2f}" for s in seconds)
        + " (median, p90, worst)",
    ]
    return "\n".join(lines)


def cell(estimate: Mapping[str, Any]) -> str:
    """A figure with its interval, and with its counts where it is made of counts."""
    counts = f", {estimate['count']} of {estimate['of']}" if estimate.get("of") else ""
    return interval(estimate, "%") + counts


def line_of(one: Result) -> str:
    """A case on one line."""
    replayed = "" if one.replayed is None else f"replay {one.replayed:.3f}"
    replayed += "" if one.forecast is None else f" -> {one.forecast:.3f}"
    more = "" if one.more_today is None else f"x1.25 {one.more_today:.3f} -> {one.more_advised:.3f}"
    return (
        f"{one.number:3} {one.action:12} {one.knobs} {one.today:.3f} -> {one.advised:.3f} "
        f"({replayed}) best {one.best:.3f} {one.best_knobs} folk {one.folk:.3f} {more} "
        f"{one.seconds:.2f}s n{one.requests} {'' if one.known else 'B? '}| {one.about} | "
        f"{one.gate or ''} {one.reason}"
    )
