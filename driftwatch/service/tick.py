"""One tick: (sources, state, now) → (state, outcome).

A live minute, a replayed month and a unit test are this function; only the sources differ. It is
evaluated over (target, minute) frames: however many minutes have become complete since the last
call are evaluated together, and the result does not depend on how they were split over calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.gpu_schema import empty_gpus, gpus_told_once
from driftwatch.collect.pages import PagesSource
from driftwatch.collect.schema import (
    KEY_COLUMNS,
    Collected,
    Source,
    empty_scrapes,
    told_once,
)
from driftwatch.detect.reference import combined
from driftwatch.detect.stage import detect
from driftwatch.diagnose.evidence_order import in_schema_order
from driftwatch.diagnose.evidence_table import Carried, evidence_table, minute_windows
from driftwatch.model import Target, TargetKey, Transition
from driftwatch.service.capacity import with_capacity
from driftwatch.service.departures import (
    absences,
    kept,
    retirements,
    unseen_rows,
    with_traffic,
)
from driftwatch.service.history import recent
from driftwatch.service.judging import let_go, live_through
from driftwatch.service.past_minutes import PastMinutes, carried, nothing_recent, with_these
from driftwatch.service.pinned import Pinned, learnt, pinned, with_refusals, with_releases
from driftwatch.service.plan import Plan
from driftwatch.service.replaying import Replayed
from driftwatch.service.roster import Sources, returning, roster
from driftwatch.service.state import HISTORY, Outcome, State, forgotten
from driftwatch.service.telling import tell, with_pages
from driftwatch.service.unseen import late, listing, said
from driftwatch.signals.minutes import minutes

_KEY = list(KEY_COLUMNS)
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
    sources = sources or Sources(names=tuple(f"source {i}" for i in range(len(collected))))
    brought = _together([c.scrapes for c in collected])
    problems = tuple(p for c in collected for p in c.problems)
    there = roster(state, collected, sources, pl.concat([state.scrapes, brought]), plan)
    state = _without(state, there.reborn)
    scrapes = _together([state.scrapes, brought])
    read = pl.concat([empty_gpus(), *(c.gpus for c in collected)])
    gpus = gpus_told_once([state.gpus, read], (state.evaluated_until or until - CATCH_UP) - HISTORY)
    first, last = _first_minute(replace(state, scrapes=scrapes), until), _floor(until)
    reasons = there.gone or {}
    left_out = forgotten({*there.reborn, *reasons}, state.evaluated_until)
    departures = replace(state.departures, origins=there.origins, retired=there.retired)
    incidents, closed = let_go(
        plan.rules, state.incidents, there.targets, reasons, first or until, state.targets
    )
    state = replace(
        _without(replace(state, scrapes=scrapes), reasons),
        gpus=gpus,
        targets=there.targets,
        departures=departures,
        incidents=incidents,
    )
    pieces: list[_Piece] = []
    away = dict(there.away)
    while first is not None and first < last:
        state, following = _with_returned(state, away, first, there.origins, plan)
        if not state.targets:
            break
        until_then = min(following or last, last)
        piece = _piece(state, first, until_then, plan, sources, there.left, past)
        pieces.append(piece)
        # to come back a target must be listed now, or have been
        away |= {key: state.targets[key] for key in piece.retired}
        state, first = piece.state, piece.until
    if first is not None and first < last and pieces:
        state = replace(state, evaluated_until=last)
    told = with_pages(closed, {}, state, plan) + tuple(t for p in pieces for t in p.transitions)
    empty = pl.DataFrame()
    return state, Outcome(
        rows=pl.concat([p.rows for p in pieces]) if pieces else empty,
        verdicts=pl.concat([p.verdicts for p in pieces]) if pieces else empty,
        transitions=told,
        scrapes=brought,
        problems=problems,
        unseen=pl.concat([empty_scrapes(), *(p.unseen for p in pieces)]),
        retired={**reasons, **{k: why for p in pieces for k, why in p.retired.items()}},
        reborn=there.reborn,
        gpus=read,
        forgotten=pl.concat([left_out, *(forgotten(p.retired, p.until) for p in pieces)]),
        replayed=tuple(answer for p in pieces for answer in p.replayed),
        targets=state.targets,
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    """Minutes that were evaluated together, up to the one that retires a target.

    Attributes:
        state: after them.
        until: end of the last of them.
        rows: evidence rows.
        verdicts: beside the rows.
        transitions: with their pages.
        unseen: rows made for minutes without a scrape.
        retired: target → why.
        replayed: what was replayed for the pages.
    """

    state: State
    until: datetime
    rows: pl.DataFrame
    verdicts: pl.DataFrame
    transitions: tuple[Transition, ...]
    unseen: pl.DataFrame
    retired: Mapping[TargetKey, str]
    replayed: tuple[Replayed, ...]


def _piece(
    state: State,
    first: datetime,
    last: datetime,
    plan: Plan,
    sources: Sources,
    left: frozenset[TargetKey],
    past: PastMinutes | None,
) -> _Piece:
    """Evaluate [first, last), or up to the end of the first minute that retires a target.

    A retired target is none in the minutes after: what its pool is compared with changes.
    """
    frames = plan.frames(state.targets)
    pools = frames.serving.select(*_KEY, "pool")
    listed = listing(state, sources, left)
    absent = absences(state.scrapes, listed, first, last)
    unseen = unseen_rows(
        pl.concat([said(absent, listed), late(state, listed, sources, first, last)])
    )
    scrapes = _together([state.scrapes, unseen]) if len(unseen) else state.scrapes
    state = with_pins(state, plan, first + timedelta(minutes=1))
    pins = state.pinned
    reference = combined(combined(state.reference, pins.reference), frames.declared)
    table = evidence_table(
        scrapes,
        minute_windows(pools, first, last),
        kind="chained",
        cut=False,
        serving=frames.serving,
        reference=reference,
        inputs=plan.inputs,
        carried=state.carried,
        gpus=state.gpus,
        gpu_targets=frames.gpu_targets,
    )
    traffic, silent = with_traffic(state.departures, table.rows)
    retired: dict[TargetKey, str] = {}
    if len(absent):
        going = retirements(absent.join(pools, on=_KEY, how="left"), traffic, silent)
        decided = going["end"].min()
        if isinstance(decided, datetime) and decided < last:
            return _piece(state, first, decided, plan, sources, left, past)
        retired = {TargetKey(i, e): why for i, e, _, why in going.iter_rows()}

    told_rows = with_releases(table.rows, pins.frame, state.releases)
    own = minutes(told_rows)
    detected, detection = detect(own, state.detection, pins.pins, plan.detection)
    rows = with_refusals(with_detected(told_rows, detected), pins.frame)
    seen = with_these(past, state.recent, own, rows)
    rows, capacity = with_capacity(
        rows, state.capacity, seen, plan, state.targets, state.gpus, after=state.replays_after
    )
    verdicts = rows.select(rule.verdict.alias(rule.id) for rule in plan.enabled)
    judged = rows.join(_ever_seen(table.carried), on=_KEY, how="left", maintain_order="left")
    incidents, transitions = live_through(
        plan.enabled, state.incidents, state.targets, judged, verdicts
    )
    staying = {k: t for k, t in state.targets.items() if k not in retired}
    incidents, closed = let_go(plan.rules, incidents, staying, retired, last)
    windows = (state, scrapes, frames, reference, plan, rows, verdicts, seen, (first, last))
    told, incidents, answers = tell([*transitions, *closed], incidents, *windows)
    traffic, silent = kept(traffic, silent, last)
    origins = state.departures.origins
    after = replace(
        state,
        scrapes=recent(state.scrapes, last),
        gpus=state.gpus.filter(pl.col("time") >= last - HISTORY),
        evaluated_until=last,
        carried=table.carried,
        detection=detection,
        # only a restart can bring other GPUs
        pinned=Pinned() if len(state.gpus) and rows["restarted"].any() else pins,
        incidents=incidents,
        targets=staying if retired else state.targets,
        departures=replace(
            state.departures,
            traffic=traffic,
            last=silent,
            origins={k: o for k, o in origins.items() if k not in retired} if retired else origins,
            # only those that a source still lists would come back without a scrape
            retired=state.departures.retired | (retired.keys() - left),
        ),
        recent=carried(seen.frame, last),
        capacity=capacity,
    )
    after = _without(after, retired, before=last)
    return _Piece(after, last, rows, verdicts, told, unseen, retired, answers)


def with_pins(state: State, plan: Plan, minute_end: datetime) -> State:
    """The state with pins and releases as they are in the minute that ends then."""
    now = state.pinned
    if not now.still(state.pins, state.targets, plan):
        now = pinned(state.pins, state.targets, plan, state.gpus)
    releases = learnt(state.releases, now.frame, minute_end)
    return replace(state, pinned=now, releases=releases)


def with_detected(rows: pl.DataFrame, detected: pl.DataFrame) -> pl.DataFrame:
    """Evidence rows with the detectors' columns in their places."""
    return in_schema_order(rows.with_columns(detected)) if detected.width else rows


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


def _ever_seen(carried: Carried) -> pl.DataFrame:
    """Whether any input of a target was ever on its page."""
    seen = [pl.col(c).is_not_null() for c in carried.seen.columns if c.startswith("seen_")]
    return carried.seen.select(*_KEY, ever_seen=pl.any_horizontal(pl.lit(False), *seen))


def _without(state: State, keys: Iterable[TargetKey], before: datetime | None = None) -> State:
    """The state without what it remembers of some targets: their scrapes, and what was inferred.

    Scrapes from ``before`` on stay: catching up, a target may be back by then.
    """
    gone = [tuple(key) for key in keys]
    if not gone:
        return state
    frame = pl.DataFrame(gone, schema=dict.fromkeys(_KEY, pl.String), orient="row")

    def others(of: pl.DataFrame) -> pl.DataFrame:
        return of.join(frame, on=_KEY, how="anti", maintain_order="left")

    carried, scrapes = state.carried, state.scrapes
    later = scrapes.clear()
    if before is not None:
        later = scrapes.filter(pl.col("time") >= before).join(frame, on=_KEY, how="semi")
    return replace(
        state,
        scrapes=_together([others(scrapes), later]) if len(later) else others(scrapes),
        carried=replace(
            carried,
            plateau=others(carried.plateau),
            alive=others(carried.alive),
            seen=others(carried.seen),
        ),
        departures=replace(state.departures, last=others(state.departures.last)),
        detection=state.detection.without(frame),
    )


def _together(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Scrapes of several sources, one row per target and time."""
    return told_once(pl.concat([empty_scrapes(), *frames]))


def _floor(time: datetime) -> datetime:
    return time.replace(second=0, microsecond=0)


def _first_minute(state: State, until: datetime) -> datetime | None:
    """Start of the first minute to evaluate; None while there is nothing."""
    if state.evaluated_until is not None:
        return max(state.evaluated_until, _floor(until - CATCH_UP))
    earliest = state.scrapes["time"].min()
    return _floor(earliest) if isinstance(earliest, datetime) else None
