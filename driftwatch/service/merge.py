"""What several batches did, and what they remember, as of one: for metrics and the log."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from driftwatch.collect.schema import empty_scrapes
from driftwatch.diagnose.evidence_table import no_rows
from driftwatch.model import TargetKey
from driftwatch.pipeline.state import Outcome, State


def merge(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcomes of some ticks, as of one."""
    if len(outcomes) == 1:
        return outcomes[0]
    with_rows = [one for one in outcomes if len(one.rows)]
    problems = dict.fromkeys(problem for one in outcomes for problem in one.problems)
    return Outcome(
        rows=pl.concat([o.rows for o in with_rows]) if with_rows else pl.DataFrame(),
        verdicts=pl.concat([o.verdicts for o in with_rows]) if with_rows else pl.DataFrame(),
        transitions=tuple(t for one in outcomes for t in one.transitions),
        scrapes=pl.concat([empty_scrapes(), *(one.scrapes for one in outcomes)]),
        problems=tuple(problems),
        retired={key: why for one in outcomes for key, why in one.retired.items()},
        reborn=frozenset[TargetKey]().union(*(one.reborn for one in outcomes)),
        advices=tuple(answer for one in outcomes for answer in one.advices),
        targets={key: t for one in outcomes for key, t in one.targets.items()},
        minutes=pl.concat([no_rows(), *(one.minutes for one in outcomes)]),
        not_evaluated={i: why for one in outcomes for i, why in one.not_evaluated.items()},
    )


def merge_states(states: Sequence[State]) -> State:
    """What metrics and the log take of the states of some batches, as of one."""
    if len(states) == 1:
        return states[0]
    reached = [state.evaluated_until for state in states if state.evaluated_until is not None]
    return State(
        evaluated_until=min(reached, default=None),
        targets={key: t for state in states for key, t in state.targets.items()},
        incidents={key: i for state in states for key, i in state.incidents.items()},
    )
