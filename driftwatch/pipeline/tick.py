"""One tick, from scrapes to pages: collect → minutes → evidence → verdicts → incidents → pages.

A tick evaluates the minutes that became complete since the last tick, all targets at once. The
split of minutes over ticks does not change the result.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.in_force import (
    InForce,
    gpus_of,
    in_force,
    update_releases,
    with_refusals,
    with_releases,
)
from driftwatch.collect.doubles import with_own_names
from driftwatch.collect.gpus import empty_gpus, gpus_once
from driftwatch.collect.schema import SourceProblem, scrape_frame
from driftwatch.diagnose.states import in_schema_order, with_states
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.detection import detect, trim
from driftwatch.pipeline.evaluation import Ask, Evaluation, Signals, gpu_minutes, signals_of
from driftwatch.pipeline.incidents import advance, close_departed, just_ended
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.pages import with_pages, with_resolve_page
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import target_advice
from driftwatch.pipeline.roster import Roster, TickInput, first_scrapes, retirements, roster
from driftwatch.pipeline.state import FIRST_LOOK, Outcome, State, merge, merge_scrapes, without
from driftwatch.rulebook.rules import Rule
from driftwatch.signals.minutes import minutes
from driftwatch.signals.one_process import fail_foreign_scrapes
from driftwatch.store.minute_columns import stored_rows
from driftwatch.store.store import Store

# After a stop a tick catches up this far; older minutes get no verdict.
CATCH_UP = timedelta(hours=6)
_MINUTE = timedelta(minutes=1)
_GPUS = ("instance", "end", "gpu_model")


@dataclass(frozen=True, slots=True)
class _Context:
    """Input shared by all minutes of a tick."""

    plan: Plan
    given: TickInput
    ask: Ask


def evaluate(
    state: State, given: TickInput, plan: Plan, store: Store, ask: Ask = target_advice
) -> tuple[State, Outcome]:
    """The part of a tick that neither queries a source nor writes.

    A bad scrape costs only its own server's minutes (:func:`isolate`).

    Args:
        store: with the minutes before this tick.
        ask: runs a simulation.
    """

    def judge(before: State, answers: TickInput) -> tuple[State, Outcome]:
        return _evaluated(before, answers, plan, store, ask)

    return isolate(judge, state, given)


def _evaluated(
    state: State, given: TickInput, plan: Plan, store: Store, ask: Ask
) -> tuple[State, Outcome]:
    """Evaluate every complete minute; a piece ends where a target joins or retires."""
    names, collected = tuple(given.answers), list(given.answers.values())
    collected = with_own_names(collected, names, state.targets, state.origins)
    given = replace(given, answers=dict(zip(names, collected, strict=True)))
    scrapes = fail_foreign_scrapes(merge_scrapes([c.scrapes for c in collected]), state.scrapes)
    gpus = pl.concat([empty_gpus(), *(c.gpus for c in collected)])
    now = roster(state, given, plan)
    context = _Context(plan, replace(given, not_listed=now.not_listed), ask)
    state, first, left = _with_collected(state, now, scrapes, gpus, context)

    waiting = dict(now.waiting)
    minute, last, past, pieces = first, _floor(given.complete), PastMinutes(store), [left]
    while minute is not None and minute < last:
        state, joins_at = _with_joined(state, waiting, minute, now.origins, plan)
        if not state.targets:
            break
        before = state.targets
        state, piece, past = _piece(state, (minute, min(joins_at or last, last)), past, context)
        pieces.append(piece)
        waiting |= {key: before[key] for key in piece.retired}  # they may return
        minute = state.evaluated_until
    if len(pieces) > 1:  # the rest of the minutes have no target
        state = replace(state, evaluated_until=last)
    state, _ = _with_joined(state, waiting, last, now.origins, plan)
    if state.evaluated_until is not None:
        state = replace(state, detection=trim(state.detection, state.evaluated_until))
    found = replace(
        merge(pieces),
        scrapes=scrapes,
        problems=tuple(p for c in collected for p in c.problems),
        targets=state.targets,
    )
    return state, found


def _with_collected(
    state: State,
    now: Roster,
    scrapes: pl.DataFrame,
    gpus: pl.DataFrame,
    context: _Context,
) -> tuple[State, datetime | None, Outcome]:
    """Add the collected scrapes; drop targets that departed or changed identity.

    Returns the state, its first minute (None = no scrape yet), and the incidents that this closed.
    """
    plan, until = context.plan, context.given.complete
    since = context.given.since or until - CATCH_UP
    state = without(state, now.reborn)
    state = replace(state, scrapes=merge_scrapes([state.scrapes, scrapes]))
    earliest, first = state.scrapes["time"].min(), None
    if state.evaluated_until is not None:
        first = max(state.evaluated_until, _floor(since))
    elif isinstance(earliest, datetime):
        first = _floor(earliest)
    incidents, closed = close_departed(
        plan.rules, state.incidents, now.targets, now.departed, first or until
    )
    state = replace(
        without(state, now.departed),
        gpus=gpus_once([state.gpus, gpus], (state.evaluated_until or since) - FIRST_LOOK),
        targets=now.targets,
        origins=now.origins,
        incidents=incidents,
    )
    nothing = pl.DataFrame()
    transitions = tuple(with_resolve_page(plan, one) for one in closed)
    left = Outcome(nothing, nothing, transitions, retired=now.departed, reborn=now.reborn)
    return state, first, left


def _with_joined(
    state: State,
    waiting: Mapping[TargetKey, Target],
    minute: datetime,
    origins: Mapping[TargetKey, str],
    plan: Plan,
) -> tuple[State, datetime | None]:
    """Let waiting targets join whose first scrape has come; without a target the first of them.

    Returns the state and when the next target joins.
    """
    asleep = [key for key in waiting if key not in state.targets]
    starts = {key: _floor(at) for key, at in first_scrapes(state.scrapes, asleep).items()}
    due = minute if state.targets else max(minute, min(starts.values(), default=minute))
    joined = {key: waiting[key] for key, start in starts.items() if start <= due}
    following = min((start for start in starts.values() if start > due), default=None)
    if not joined:
        return state, following
    return replace(
        state,
        targets=plan.assign({**state.targets, **joined}, state.targets),
        origins={**state.origins, **{key: origins[key] for key in joined if key in origins}},
    ), following


def _piece(
    state: State, span: tuple[datetime, datetime], past: PastMinutes, context: _Context
) -> tuple[State, Outcome, PastMinutes]:
    """Evaluate [first, last), or up to the end of the first minute that retires a target."""
    plan, (first, last) = context.plan, span
    state = with_baselines(state, plan, first, last)
    signals, after = signals_of(state, first, last, plan, context.given)
    minutes_here = signals.minutes
    decided, retired = retirements(minutes_here)
    if decided is not None and decided < last:
        return _piece(state, (first, decided), past, context)
    rows, after = _detected(after, signals, span, plan, past.store)
    stored = stored_rows(rows, minutes_here)
    past = past.with_minutes(stored)

    # verdicts and incidents
    rows_judged = rows.hstack(stored.select("ever_seen"))
    verdicts = verdicts_of(plan.enabled, rows_judged)
    incidents, happened, refreshes = advance(
        plan.enabled, state.incidents, state.targets, rows_judged, verdicts, state.ended
    )
    staying = {k: t for k, t in state.targets.items() if k not in retired}
    incidents, closed = close_departed(plan.rules, incidents, staying, retired, last)

    # advice and pages
    evaluation = Evaluation(
        state, plan, signals, first, last, rows, verdicts, past, ask=context.ask
    )
    sent, incidents, advices = with_pages(evaluation, [*happened, *closed], incidents, refreshes)
    may_have_other_gpus = len(state.gpus) and rows["restarted"].any()
    after = replace(
        after,
        in_force=InForce() if may_have_other_gpus else state.in_force,
        incidents=incidents,
        ended=just_ended((*state.ended, *(t.incident for t in happened)), last),
    )
    if retired:
        after = replace(
            after,
            targets=staying,
            origins={k: name for k, name in state.origins.items() if k not in retired},
        )
    outcome = Outcome(rows, verdicts, sent, retired=retired, advices=advices, minutes=stored)
    return without(after, retired, before=last), outcome, past


def _detected(
    state: State,
    signals: Signals,
    span: tuple[datetime, datetime],
    plan: Plan,
    store: Store | None,
) -> tuple[pl.DataFrame, State]:
    """Evidence rows with the detectors' columns, and the state with their detection."""
    rows = with_releases(signals.rows, state.in_force.frame, state.releases)
    columns, detection = detect(
        *(state.detection, minutes(rows), span, state.in_force.baselines, signals.reference),
        store,
        accepts=plan.accepts_proposals,
    )
    rows = in_schema_order(rows.with_columns(columns)) if len(rows) else rows
    rows = with_states(with_refusals(rows, state.in_force.frame))
    return rows, replace(state, detection=detection)


def with_baselines(state: State, plan: Plan, first: datetime, last: datetime) -> State:
    """The state with baselines and releases as of the first minute of [first, last)."""
    now = state.in_force
    if not now.is_current(state.baselines, state.targets, plan):
        gpus = gpu_minutes(state, plan.frames(state.targets, state.frames), first, last)
        gpus = pl.concat([state.minutes.select(*_GPUS), gpus.select(*_GPUS)])
        now = in_force(state.baselines, state.targets, plan, gpus_of(gpus))
    releases = update_releases(state.releases, now.frame, first + _MINUTE)
    return replace(state, in_force=now, releases=releases)


def verdicts_of(rules: Sequence[Rule], rows: pl.DataFrame) -> pl.DataFrame:
    """One Boolean column per rule id, beside the evidence rows."""
    return rows.select(rule.verdict.alias(rule.id) for rule in rules)


def _floor(time: datetime) -> datetime:
    return time.replace(second=0, microsecond=0)


# --- Sources reject impossible numbers. If an evaluation raises all the same, bisection finds the
# servers whose scrapes cause it. Their scrapes of this tick become failed scrapes with the reason;
# the other servers are evaluated as usual.

Judge = Callable[[State, TickInput], tuple[State, Outcome]]


def isolate(judge: Judge, state: State, given: TickInput) -> tuple[State, Outcome]:
    """The result of ``judge``, without the scrapes of servers that make it fail.

    Raises:
        Exception: of ``judge``, if it fails without any scrapes too, or with each of several
            servers' scrapes: then no scrape is at fault.
    """
    try:
        return judge(state, given)
    except Exception as error:
        served = sorted({i for c in given.answers.values() for i in c.scrapes["instance"].unique()})

        def fails_with(instances: Collection[str]) -> bool:
            others = [one for one in served if one not in instances]
            try:
                judge(*_refused(state, given, others, "not evaluated"))
            except Exception:  # noqa: BLE001 - any error blames one of these servers
                return True
            return False

        culprits = [] if fails_with(()) else _culprits(fails_with, served)
        if not culprits or (len(culprits) == len(served) > 1):
            raise
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        reason = f"the scrape cannot be evaluated ({words})"
        after, outcome = judge(*_refused(state, given, culprits, reason))
        problems = tuple(SourceProblem(instance, reason) for instance in culprits)
        return after, replace(
            outcome,
            problems=(*outcome.problems, *problems),
            not_evaluated={instance: traceback.format_exc() for instance in culprits},
        )


def _culprits(fails_with: Callable[[Collection[str]], bool], among: Sequence[str]) -> list[str]:
    """The servers whose scrapes alone make the evaluation fail, by halving."""
    if not among or not fails_with(among):
        return []
    if len(among) == 1:
        return list(among)
    half = len(among) // 2
    return [*_culprits(fails_with, among[:half]), *_culprits(fails_with, among[half:])]


def _refused(
    state: State, given: TickInput, instances: Sequence[str], reason: str
) -> tuple[State, TickInput]:
    """The state without these servers, and the answers with failed scrapes for them."""
    theirs = pl.col("instance").is_in(list(instances))
    refused = {}
    for name, one in given.answers.items():
        failed = one.scrapes.filter(theirs).select(
            "instance", "engine", "time", ok=False, reason=pl.lit(reason)
        )
        scrapes = pl.concat([scrape_frame([]), one.scrapes.filter(~theirs), failed], how="diagonal")
        refused[name] = replace(one, scrapes=scrapes)
    leaving = {key for key in state.targets if key.instance in instances}
    state = replace(state, scrapes=state.scrapes.filter(~theirs))
    return without(state, leaving), replace(given, answers=refused)
