"""One tick, from scrapes to pages: collect → signals → detect → diagnose → recommend → notify.

A tick evaluates (target, minute) frames: all minutes that became complete since the last call at
once. The result does not depend on how minutes are split over calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.in_force import InForce, in_force, learnt, with_refusals, with_releases
from driftwatch.collect.doubles import read_once
from driftwatch.collect.gpus import empty_gpus, gpus_once
from driftwatch.collect.schema import KEY_COLUMNS, Collected
from driftwatch.diagnose.evidence_order import in_schema_order
from driftwatch.diagnose.evidence_table import no_rows
from driftwatch.diagnose.states import with_states
from driftwatch.incidents.incident import Transition
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.departures import retirements
from driftwatch.pipeline.detection import detected, trimmed
from driftwatch.pipeline.evaluation import Ask, Evaluation, Signals, signals_of
from driftwatch.pipeline.incidents import advanced, closed_for
from driftwatch.pipeline.isolation import isolated
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.pages import paged, with_pages
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import target_advice
from driftwatch.pipeline.roster import Roster, Sources, returning, roster
from driftwatch.pipeline.state import (
    FIRST_LOOK,
    HISTORY,
    Outcome,
    State,
    Stretch,
    last_scrapes,
    together,
    without,
)
from driftwatch.rulebook.rules import Rule
from driftwatch.signals.minutes import minutes
from driftwatch.signals.one_process import fail_foreign_scrapes
from driftwatch.store.store import Store

# After a stop a tick catches up this far; older minutes stay without a verdict.
CATCH_UP = timedelta(hours=6)
_MINUTE = timedelta(minutes=1)
_KEY = list(KEY_COLUMNS)


def evaluate(
    state: State,
    collected: Sequence[Collected],
    until: datetime,
    plan: Plan,
    store: Store,
    sources: Sources | None = None,
    since: datetime | None = None,
    ask: Ask = target_advice,
) -> tuple[State, Outcome]:
    """The part of a tick that asks no source and writes nothing.

    A bad page loses only its own server's minutes: :mod:`driftwatch.pipeline.isolation`.

    Args:
        until: everything before it has been collected, except from late sources.
        store: with the minutes before this tick.
        since: minutes before it stay without a verdict; None = those before :data:`CATCH_UP`.
        ask: runs a simulation.
    """
    named = sources or Sources(names=tuple(f"source {i}" for i in range(len(collected))))
    return isolated(
        lambda before, brought: _evaluated(
            before, brought, (since or until - CATCH_UP, until), plan, named, store, ask
        ),
        state,
        collected,
    )


def _evaluated(
    state: State,
    collected: Sequence[Collected],
    span: tuple[datetime, datetime],
    plan: Plan,
    sources: Sources,
    store: Store,
    ask: Ask,
) -> tuple[State, Outcome]:
    """Every complete minute of the span, in pieces of the same targets."""
    until = span[1]
    doubtful = {n for n, c in zip(sources.names, collected, strict=False) if c.silent is not None}
    sources = replace(sources, doubtful=frozenset(doubtful))
    origins = state.departures.origins
    collected = read_once(collected, sources.names, state.targets, origins, state.scrapes)
    scrapes = fail_foreign_scrapes(together([c.scrapes for c in collected]), state.scrapes)
    gpus = pl.concat([empty_gpus(), *(c.gpus for c in collected)])
    there = _roster_now(state, collected, sources, scrapes, plan)
    known = state.targets
    state, first, closed = _with_collected(state, there, scrapes, gpus, span, plan, sources)
    transitions = list(paged(closed, state, plan))

    last, past = _floor(until), PastMinutes(store=store)
    # new targets begin with their first scrape
    new = [key for key in there.targets if key not in known]
    starts = returning(state.scrapes, new)
    away = {**there.away, **{key: there.targets[key] for key in starts}}
    if starts:
        state = replace(state, targets={k: t for k, t in state.targets.items() if k not in starts})
    pieces: list[Outcome] = []
    minute: datetime | None = first
    while minute is not None and minute < last:
        state, following = _with_returned(state, away, minute, there.origins, plan)
        if not state.targets:
            break
        before = state.targets
        until_next = min(following or last, last)
        state, piece, past = _piece(state, minute, until_next, plan, sources, there, past, ask)
        pieces.append(piece)
        # a retired target may return
        away |= {key: before[key] for key in piece.retired}
        minute = state.evaluated_until
    if minute is not None and minute < last and pieces:
        state = replace(state, evaluated_until=last)
    later = (key for key, at in starts.items() if at >= last or not pieces)
    if begin_later := {key: away[key] for key in later if key not in state.targets}:
        state = replace(state, targets=plan.assign({**state.targets, **begin_later}, state.targets))
    if state.evaluated_until is not None:
        at_hand = trimmed(state.detection, state.evaluated_until)
        state = replace(state, detection=at_hand)
    return state, replace(
        _merged(pieces, transitions),
        scrapes=scrapes,
        problems=tuple(p for c in collected for p in c.problems),
        retired={**there.departed, **{key: why for p in pieces for key, why in p.retired.items()}},
        reborn=there.reborn,
        gpus=gpus,
        targets=state.targets,
        stretches=_stretches(pieces, there, minute or until),
    )


def _merged(pieces: Sequence[Outcome], before: Sequence[Transition]) -> Outcome:
    """The outcome of all pieces, after the transitions ``before`` them."""
    return Outcome(
        rows=pl.concat([p.rows for p in pieces]) if pieces else pl.DataFrame(),
        verdicts=pl.concat([p.verdicts for p in pieces]) if pieces else pl.DataFrame(),
        transitions=(*before, *(t for p in pieces for t in p.transitions)),
        advices=tuple(answer for p in pieces for answer in p.advices),
        minutes=pl.concat([no_rows(), *(p.minutes for p in pieces)]),
    )


def _roster_now(
    state: State,
    collected: Sequence[Collected],
    sources: Sources,
    scrapes: pl.DataFrame,
    plan: Plan,
) -> Roster:
    """The roster now; scraped targets are those with a scrape now or in earlier minutes."""
    seen = state.inputs_seen
    looked = seen.filter(pl.col("looked_until").is_not_null()) if seen.width > 2 else seen
    scraped = pl.concat(frame.select(_KEY) for frame in (state.scrapes, scrapes, looked))
    moved = state.frames is not None and not plan.has_pools_of(state.frames.plan)
    return roster(
        *(state.targets, state.departures, collected, sources, scraped, plan), pools_changed=moved
    )


def _stretches(pieces: Sequence[Outcome], there: Roster, minute: datetime) -> tuple[Stretch, ...]:
    """The stretches of the pieces; the first one has the targets that left before it."""
    several = [stretch for piece in pieces for stretch in piece.stretches]
    if not several and (there.departed or there.reborn):
        several = [Stretch(minute, minute, there.targets)]
    if several:
        several[0] = replace(several[0], departed=there.departed, reborn=there.reborn)
    return tuple(several)


def _with_collected(
    state: State,
    there: Roster,
    scrapes: pl.DataFrame,
    gpus: pl.DataFrame,
    span: tuple[datetime, datetime],
    plan: Plan,
    sources: Sources,
) -> tuple[State, datetime | None, tuple[Transition, ...]]:
    """The state with the new scrapes, without targets that left or changed identity."""
    since, until = span
    state = without(state, there.reborn)
    state = replace(state, scrapes=together([state.scrapes, scrapes]))
    earliest, first = state.scrapes["time"].min(), None
    if state.evaluated_until is not None:
        first = max(state.evaluated_until, _floor(since))
    elif isinstance(earliest, datetime):
        first = _floor(earliest)
    incidents, closed = closed_for(
        plan.rules, state.incidents, there.targets, there.departed, first or until, state.targets
    )
    state = replace(
        without(state, there.departed),
        gpus=gpus_once([state.gpus, gpus], (state.evaluated_until or since) - FIRST_LOOK),
        targets=there.targets,
        departures=replace(state.departures, origins=there.origins, retired=there.retired),
        incidents=incidents,
        looks=pl.concat([state.looks, sources.looks]).unique(maintain_order=True),
    )
    return state, first, closed


def _with_returned(
    state: State,
    away: Mapping[TargetKey, Target],
    first: datetime,
    origins: Mapping[TargetKey, str],
    plan: Plan,
) -> tuple[State, datetime | None]:
    """The state with scraped new and retired targets, each from its first scrape on."""
    asleep = [key for key in away if key not in state.targets]
    starts = {key: _floor(at) for key, at in returning(state.scrapes, asleep).items()}
    due = max(first, min(starts.values(), default=first)) if not state.targets else first
    back = {key: away[key] for key, start in starts.items() if start <= due}
    following = min((start for start in starts.values() if start > due), default=None)
    if not back:
        return state, following
    departures = state.departures
    return replace(
        state,
        targets=plan.assign({**state.targets, **back}, state.targets),
        departures=replace(
            departures,
            origins={**departures.origins, **{k: origins[k] for k in back if k in origins}},
            retired=departures.retired - back.keys(),
        ),
    ), following


def _piece(
    state: State,
    first: datetime,
    last: datetime,
    plan: Plan,
    sources: Sources,
    there: Roster,
    past: PastMinutes,
    ask: Ask,
) -> tuple[State, Outcome, PastMinutes]:
    """Evaluate [first, last), or up to the end of the first minute that retires a target."""
    state = with_baselines(state, plan, first + _MINUTE)
    state = replace(state, frames=plan.frames(state.targets, state.frames))
    asked = replace(sources, not_listed=there.not_listed)
    signals = signals_of(state, first, last, plan, asked)
    minutes_here = signals.minutes
    decided, retired = retirements(minutes_here)
    if decided is not None and decided < last:
        return _piece(state, first, decided, plan, sources, there, past, ask)
    rows, past, after = _detected(state, signals, (first, last), plan, past)

    # diagnose: verdicts, and the incidents that they make
    rows_judged = rows.hstack(minutes_here.select("ever_seen"))
    verdicts = verdicts_of(plan.enabled, rows_judged)
    incidents, happened = advanced(
        plan.enabled, state.incidents, state.targets, rows_judged, verdicts
    )
    staying = {k: t for k, t in state.targets.items() if k not in retired}
    incidents, closed = closed_for(plan.rules, incidents, staying, retired, last)

    # recommend and notify: the pages of what happened
    evaluation = Evaluation(state, plan, signals, first, last, rows, verdicts, past, ask=ask)
    transitions, incidents, advices = with_pages(evaluation, [*happened, *closed], incidents)
    may_have_other_gpus = len(state.gpus) and rows["restarted"].any()
    after = replace(
        after,
        scrapes=last_scrapes(state.scrapes, last),
        minutes=signals.recent.filter(pl.col("end") > last - HISTORY),
        inputs_seen=signals.inputs_seen,
        samples=signals.samples,
        gpus=state.gpus.filter(pl.col("time") >= last - FIRST_LOOK),
        looks=state.looks.filter(pl.col("start") >= last),
        evaluated_until=last,
        in_force=InForce() if may_have_other_gpus else state.in_force,
        incidents=incidents,
        targets=staying if retired else state.targets,
        departures=state.departures.after(retired, there.not_listed),
    )
    outcome = Outcome(
        rows=rows,
        verdicts=verdicts,
        transitions=transitions,
        retired=retired,
        advices=advices,
        minutes=minutes_here,
        stretches=(Stretch(first, last, state.targets, retired=retired),),
    )
    return without(after, retired, before=last), outcome, past


def _detected(
    state: State,
    signals: Signals,
    span: tuple[datetime, datetime],
    plan: Plan,
    past: PastMinutes,
) -> tuple[pl.DataFrame, PastMinutes, State]:
    """Evidence rows with the detectors' columns; the past with these rows; the state with the new
    detection.
    """
    rows = with_releases(signals.rows, state.in_force.frame, state.releases)
    own = minutes(rows)
    columns, detection = detected(
        *(state.detection, own, span, state.in_force.baselines, signals.reference),
        past.store,
        accepts=plan.accepts_proposals,
    )
    rows = in_schema_order(rows.with_columns(columns)) if len(rows) else rows
    rows = with_states(with_refusals(rows, state.in_force.frame))
    past = past.with_rows(rows, signals.minutes)
    return rows, past, replace(state, detection=detection)


def with_baselines(state: State, plan: Plan, minute_end: datetime) -> State:
    """The state with the baselines and releases of the minute that ends at ``minute_end``."""
    now = state.in_force
    if not now.still(state.baselines, state.targets, plan):
        now = in_force(state.baselines, state.targets, plan, state.gpus)
    releases = learnt(state.releases, now.frame, minute_end)
    return replace(state, in_force=now, releases=releases)


def verdicts_of(rules: Sequence[Rule], rows: pl.DataFrame) -> pl.DataFrame:
    """One Boolean column per rule id, beside the evidence rows."""
    return rows.select(rule.verdict.alias(rule.id) for rule in rules)


def _floor(time: datetime) -> datetime:
    return time.replace(second=0, microsecond=0)
