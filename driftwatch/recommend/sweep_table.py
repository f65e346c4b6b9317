"""The rows of the answer's table: the knob that matters, value by value, today among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log2

from driftwatch.recommend.advice import Candidate
from driftwatch.recommend.candidates import candidate
from driftwatch.recommend.case import Case
from driftwatch.recommend.sweep import Gain
from driftwatch.recommend.sweep_candidates import Knobs, single_knobs
from driftwatch.recommend.worlds import setting_of
from driftwatch.simulate.requests import Requests

_ROWS_WITH_CAPACITY = 8


def table_rows(
    case: Case, judged: Requests, gains: Sequence[Gain], advised: Candidate | None
) -> tuple[Candidate, ...]:
    """Candidates that vary the advised knob, or the one that came nearest, by value.

    Args:
        case: with today.
        judged: requests that count.
        gains: of the sweep, best first.
        advised: the change, with its capacity.
    """
    ground = case.ground
    today = ground.worlds[0].configuration
    first = advised.knobs if advised else (gains[0].knobs if gains else {})
    first = first or {"max_num_seqs": float(today.max_num_seqs)}
    knob = next(iter(first))
    line = [
        knobs
        for knobs in single_knobs(today, budget_known=ground.budget_known)
        if set(knobs) == {knob}
    ]
    now = setting_of(today, knob) or 0.0
    target = first[knob]
    near = sorted(line, key=lambda knobs: abs(_steps(knobs[knob], target)))[:_ROWS_WITH_CAPACITY]
    rows = [case.today]
    for knobs in line:
        if advised is not None and dict(knobs) == dict(advised.knobs):
            continue
        rows.append(_row(case, knobs, judged if knobs in near else None))
    rows.sort(key=lambda row: row.knobs.get(knob, now))
    if advised is not None:
        rows.append(advised)
        if len(advised.knobs) == 1:
            rows.sort(key=lambda row: row.knobs.get(knob, now))
    return tuple(rows)


def _steps(value: float, other: float) -> float:
    return log2(value / other) if value > 0 and other > 0 else 0.0


def _row(case: Case, knobs: Knobs, judged: Requests | None) -> Candidate:
    """One value in every world; with a capacity where it is near the advised one."""
    found = candidate(
        case.ground,
        knobs,
        offered=case.offered,
        judged_requests=judged,
        near=case.today.capacity_requests_per_second,
    )
    if judged is not None or found.refused:
        return found
    why = "looked for only near today's and the advised value"
    return replace(found, reasons={**found.reasons, "capacity_requests_per_second": why})
