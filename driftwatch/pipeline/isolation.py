"""Isolates servers whose scrapes make the evaluation fail: only their own minutes are lost.

Sources already reject numbers that a metric cannot have. This handles the rest: when the evaluation
raises, bisection finds the servers whose scrapes cause it. Their scrapes of this tick become failed
scrapes with the reason, and every other server is evaluated as usual.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import polars as pl

from driftwatch.collect.schema import Collected, SourceProblem, scrape_frame
from driftwatch.pipeline.state import Outcome, State, without

Judge = Callable[[State, Sequence[Collected]], tuple[State, Outcome]]


def isolated(judge: Judge, state: State, collected: Sequence[Collected]) -> tuple[State, Outcome]:
    """The result of ``judge``, without the scrapes of servers on which it fails.

    Raises:
        Exception: of ``judge``, where it fails without any server's scrapes too, or with those
            of each of several servers: then no page is at fault.
    """
    try:
        return judge(state, collected)
    except Exception as error:
        served = sorted({i for c in collected for i in c.scrapes["instance"].unique()})

        def fails_with(instances: Collection[str]) -> bool:
            others = [one for one in served if one not in instances]
            try:
                judge(*_refused(state, collected, others, "not evaluated"))
            except Exception:  # noqa: BLE001 - whatever it is, it is one of these servers'
                return True
            return False

        culprits = [] if fails_with(()) else _culprits(fails_with, served)
        if not culprits or (len(culprits) == len(served) > 1):
            raise
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        reason = f"the scrape cannot be evaluated ({words})"
        after, outcome = judge(*_refused(state, collected, culprits, reason))
        problems = tuple(SourceProblem(instance, reason) for instance in culprits)
        return after, replace(
            outcome,
            problems=(*outcome.problems, *problems),
            not_evaluated={instance: traceback.format_exc() for instance in culprits},
        )


def _culprits(fails_with: Callable[[Collection[str]], bool], among: Sequence[str]) -> list[str]:
    """The servers whose scrapes alone make the evaluation fail, by name."""
    if not among or not fails_with(among):
        return []
    if len(among) == 1:
        return list(among)
    half = len(among) // 2
    return [*_culprits(fails_with, among[:half]), *_culprits(fails_with, among[half:])]


def _refused(
    state: State, collected: Sequence[Collected], instances: Sequence[str], reason: str
) -> tuple[State, list[Collected]]:
    """The state without these servers, and the answers with failed scrapes in their place."""
    theirs = pl.col("instance").is_in(list(instances))
    refused = []
    for one in collected:
        failed = one.scrapes.filter(theirs).select(
            "instance", "engine", "time", ok=False, reason=pl.lit(reason)
        )
        scrapes = pl.concat([scrape_frame([]), one.scrapes.filter(~theirs), failed], how="diagonal")
        refused.append(replace(one, scrapes=scrapes))
    leaving = {key for key in state.targets if key.instance in instances}
    state = replace(state, scrapes=state.scrapes.filter(~theirs))
    return without(state, leaving), refused
