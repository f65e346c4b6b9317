"""One tick: (sources, state, now) → (state, outcome).

A live minute, a replayed month and a unit test are this function; only the sources differ. It is
evaluated over (target, minute) frames: however many minutes have become complete since the last
call are evaluated together, and the result does not depend on how they were split over calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.gpus import empty_gpus, gpus_told_once
from driftwatch.collect.pages.source import PagesSource
from driftwatch.collect.schema import Collected, Source, empty_scrapes
from driftwatch.model import Target, TargetKey, Transition
from driftwatch.pipeline.isolating import isolated
from driftwatch.pipeline.judging import let_go
from driftwatch.pipeline.past_minutes import PastMinutes, nothing_recent
from driftwatch.pipeline.piece import Piece, piece_from
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.roster import Roster, Sources, returning, roster
from driftwatch.pipeline.state import HISTORY, Outcome, State, forgotten, together, without
from driftwatch.pipeline.telling import with_pages
from driftwatch.signals.one_process import of_one_process

# After a long stop only this much is caught up; older minutes stay without a verdict.
CATCH_UP = timedelta(hours=6)


def tick(
    sources: Sequence[Source],
    state: State,
    now: datetime,
    plan: Plan,
    past: PastMinutes | None = None,
) -> tuple[State, Outcome]:
    """Collect up to ``now``, one source after the other, and evaluate what has become complete.

    Args:
        sources: where scrapes come from; asked for [last time, now).
        state: from the tick before, or :class:`State()`.
        now: aware, UTC.
        plan: rules, trees, pools.
        past: minutes before this tick; None = the state carries the last hour of them.
    """
    collected: list[Collected] = []
    names: list[str] = []
    until: dict[str, datetime] = dict(state.collected_until)
    for source in sources:
        since = until.get(source.name, now - HISTORY)
        edge = now - timedelta(seconds=source.settle_seconds)
        if edge <= since:
            continue
        collected.append(source.collect(since, edge))
        names.append(source.name)
        until[source.name] = edge
    complete = min((until[s.name] for s in sources if s.name in until), default=now)
    told = sources_told(sources, names)
    return evaluate(replace(state, collected_until=until), collected, complete, plan, told, past)


def sources_told(
    sources: Sequence[Source], names: Sequence[str], late: Mapping[str, str] | None = None
) -> Sources:
    """What :func:`evaluate` is told of the sources, of which those of ``names`` brought something.

    Args:
        sources: all of them.
        names: in the order of what they brought.
        late: name → why nothing came of it, for those that hold nobody up any more.
    """
    return Sources(
        names=tuple(names),
        known=frozenset(source.name for source in sources),
        fixed=frozenset(source.name for source in sources if isinstance(source, PagesSource)),
        late=late,
    )


def evaluate(
    state: State,
    collected: Sequence[Collected],
    until: datetime,
    plan: Plan,
    sources: Sources | None = None,
    past: PastMinutes | None = None,
) -> tuple[State, Outcome]:
    """The pure part of a tick: no source is asked.

    What a server served costs no other one its minutes; see :mod:`driftwatch.pipeline.isolating`.

    Args:
        state: from the tick before.
        collected: what the sources brought since then.
        until: everything before it has been collected, but for late sources.
        plan: rules, trees, pools.
        sources: which sources those were.
        past: minutes before this tick; None = the state carries the last hour of them.
    """
    if past is not None:
        state = replace(state, recent=nothing_recent())
    told = sources or Sources(names=tuple(f"source {i}" for i in range(len(collected))))
    return isolated(
        lambda held, brought: _evaluated(held, brought, until, plan, told, past), state, collected
    )


def _evaluated(
    state: State,
    collected: Sequence[Collected],
    until: datetime,
    plan: Plan,
    sources: Sources,
    past: PastMinutes | None,
) -> tuple[State, Outcome]:
    state, came = _arrived(state, collected, until, plan, sources)
    state, pieces = _pieces(state, came, _floor(until), plan, sources, past)
    told = with_pages(came.closed, {}, state, plan)
    empty, gone = pl.DataFrame(), came.there.gone or {}
    return state, Outcome(
        rows=pl.concat([p.rows for p in pieces]) if pieces else empty,
        verdicts=pl.concat([p.verdicts for p in pieces]) if pieces else empty,
        transitions=told + tuple(t for p in pieces for t in p.transitions),
        scrapes=came.scrapes,
        problems=tuple(p for c in collected for p in c.problems),
        unseen=pl.concat([empty_scrapes(), *(p.unseen for p in pieces)]),
        retired={**gone, **{k: why for p in pieces for k, why in p.retired.items()}},
        reborn=came.there.reborn,
        gpus=came.gpus,
        forgotten=pl.concat([came.forgotten, *(forgotten(p.retired, p.until) for p in pieces)]),
        replayed=tuple(answer for p in pieces for answer in p.replayed),
        targets=state.targets,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Arrived:
    """What the sources brought, and what it says of who is there.

    Attributes:
        scrapes: brought.
        gpus: readings that were brought.
        there: the targets.
        first: start of the first minute to evaluate; None while there is nothing.
        closed: ends of incidents of targets that are gone.
        forgotten: targets that the detectors forget before the minutes.
    """

    scrapes: pl.DataFrame
    gpus: pl.DataFrame
    there: Roster
    first: datetime | None
    closed: tuple[Transition, ...]
    forgotten: pl.DataFrame


def _arrived(
    state: State, collected: Sequence[Collected], until: datetime, plan: Plan, sources: Sources
) -> tuple[State, _Arrived]:
    """The state with what was brought, without targets that are gone or others by now."""
    brought = of_one_process(together([c.scrapes for c in collected]), state.scrapes)
    there = roster(state, collected, sources, pl.concat([state.scrapes, brought]), plan)
    state = without(state, there.reborn)
    state = replace(state, scrapes=together([state.scrapes, brought]))
    read = pl.concat([empty_gpus(), *(c.gpus for c in collected)])
    first, gone = _first_minute(state, until), there.gone or {}
    incidents, closed = let_go(
        plan.rules, state.incidents, there.targets, gone, first or until, state.targets
    )
    came = _Arrived(
        brought,
        read,
        there,
        first,
        closed,
        forgotten({*there.reborn, *gone}, state.evaluated_until),
    )
    since = (state.evaluated_until or until - CATCH_UP) - HISTORY
    return replace(
        without(state, gone),
        gpus=gpus_told_once([state.gpus, read], since),
        targets=there.targets,
        departures=replace(state.departures, origins=there.origins, retired=there.retired),
        incidents=incidents,
    ), came


def _pieces(
    state: State,
    came: _Arrived,
    last: datetime,
    plan: Plan,
    sources: Sources,
    past: PastMinutes | None,
) -> tuple[State, list[Piece]]:
    """Every complete minute, evaluated in pieces of the same targets; the state after them."""
    pieces: list[Piece] = []
    first, away = came.first, dict(came.there.away)
    while first is not None and first < last:
        state, following = _with_returned(state, away, first, came.there.origins, plan)
        if not state.targets:
            break
        until = min(following or last, last)
        piece = piece_from(state, first, until, plan, sources, came.there.left, past)
        pieces.append(piece)
        # to come back a target must be listed now, or have been
        away |= {key: state.targets[key] for key in piece.retired}
        state, first = piece.state, piece.until
    if first is not None and first < last and pieces:
        state = replace(state, evaluated_until=last)
    return state, pieces


def _with_returned(
    state: State,
    away: Mapping[TargetKey, Target],
    first: datetime,
    origins: Mapping[TargetKey, str],
    plan: Plan,
) -> tuple[State, datetime | None]:
    """The state with the retired targets that are scraped again, each from its first scrape on.

    Without any other target the next one is there at once, as nothing is evaluated until then.

    Args:
        state: before the minute.
        away: retired targets.
        first: start of the minute.
        origins: target → name of the source that lists it.
        plan: pools.

    Returns:
        The state, and the start of the minute in which the next one comes.
    """
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


def _floor(time: datetime) -> datetime:
    return time.replace(second=0, microsecond=0)


def _first_minute(state: State, until: datetime) -> datetime | None:
    """Start of the first minute to evaluate; None while there is nothing."""
    if state.evaluated_until is not None:
        return max(state.evaluated_until, _floor(until - CATCH_UP))
    earliest = state.scrapes["time"].min()
    return _floor(earliest) if isinstance(earliest, datetime) else None
