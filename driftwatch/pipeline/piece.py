"""Minutes that are evaluated together: from their scrapes to what people are told. Pure.

A piece ends with the first minute that retires a target: what its pool is compared with in the
minutes after is something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.pinned import Pinned, learnt, pinned, with_refusals, with_releases
from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.detect.reference import combined
from driftwatch.detect.stage import Memory, detect
from driftwatch.diagnose.evidence_order import in_schema_order
from driftwatch.diagnose.evidence_table import (
    Carried,
    EvidenceTable,
    evidence_table,
    minute_windows,
)
from driftwatch.model import Incident, TargetKey, Transition
from driftwatch.pipeline.capacity import with_capacity
from driftwatch.pipeline.departures import (
    Departures,
    absences,
    kept,
    retirements,
    undecided,
    unseen_rows,
    with_traffic,
)
from driftwatch.pipeline.history import recent
from driftwatch.pipeline.judging import let_go, live_through
from driftwatch.pipeline.past_minutes import PastMinutes, SeenMinutes, carried, with_these
from driftwatch.pipeline.plan import Plan, TargetFrames
from driftwatch.pipeline.replaying import Replayed
from driftwatch.pipeline.roster import Sources
from driftwatch.pipeline.state import HISTORY, State, together, without
from driftwatch.pipeline.telling import tell
from driftwatch.pipeline.unseen import late, listing, said
from driftwatch.signals.minutes import minutes

_KEY = list(KEY_COLUMNS)


@dataclass(frozen=True, slots=True)
class Piece:
    """What became of the minutes.

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


def piece_from(
    state: State,
    first: datetime,
    last: datetime,
    plan: Plan,
    sources: Sources,
    left: frozenset[TargetKey],
    past: PastMinutes | None,
) -> Piece:
    """Evaluate [first, last), or up to the end of the first minute that retires a target.

    Args:
        state: before the minutes.
        first: start of the first minute.
        last: end of the last one.
        plan: rules, trees, pools.
        sources: which sources there are.
        left: targets that no source lists any more.
        past: minutes before this tick; None = the state carries the last hour of them.
    """
    state = with_pins(state, plan, first + timedelta(minutes=1))
    seen = _seen(state, first, last, plan, sources, left)
    departures = _with_traffic(state.departures, seen.table)
    decided, retired = _retired(seen, departures)
    if decided is not None and decided < last:
        return piece_from(state, first, decided, plan, sources, left, past)

    found = _found(state, seen.table.rows, plan, past)
    gone = undecided(seen.absent, departures.last, retired, last)
    verdicts = _verdicts(found.rows, gone, plan)
    happened, incidents = _happened(state, seen, found.rows, verdicts, plan, retired, last)
    told, incidents, answers = tell(
        happened,
        incidents,
        state,
        seen.scrapes,
        seen.frames,
        seen.reference,
        plan,
        found.rows,
        verdicts,
        found.seen,
        (first, last),
    )
    departures = _without_retired(departures, retired, left, last)
    after = _after(state, seen.table.carried, found, incidents, departures, retired, last)
    return Piece(after, last, found.rows, verdicts, told, seen.unseen, retired, answers)


def with_pins(state: State, plan: Plan, minute_end: datetime) -> State:
    """The state with pins and releases as they are in the minute that ends then."""
    now = state.pinned
    if not now.still(state.pins, state.targets, plan):
        now = pinned(state.pins, state.targets, plan, state.gpus)
    releases = learnt(state.releases, now.frame, minute_end)
    return replace(state, pinned=now, releases=releases)


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """What the scrapes say.

    Attributes:
        frames: targets as frames.
        reference: what "before" means.
        scrapes: of the minutes and before, with those made for minutes without one.
        unseen: those made.
        absent: the minutes without one; see :func:`driftwatch.pipeline.departures.absences`.
        table: their evidence.
    """

    frames: TargetFrames
    reference: pl.DataFrame
    scrapes: pl.DataFrame
    unseen: pl.DataFrame
    absent: pl.DataFrame
    table: EvidenceTable

    @property
    def pools(self) -> pl.DataFrame:
        """instance, engine, pool."""
        return self.frames.serving.select(*_KEY, "pool")


def _seen(
    state: State,
    first: datetime,
    last: datetime,
    plan: Plan,
    sources: Sources,
    left: frozenset[TargetKey],
) -> _Seen:
    """The evidence of every target in every minute, also of those that no scrape came of."""
    frames = plan.frames(state.targets)
    listed = listing(state, sources, left)
    absent = absences(state.scrapes, listed, first, last)
    unseen = unseen_rows(
        pl.concat([said(absent, listed), late(state, listed, sources, first, last)])
    )
    scrapes = together([state.scrapes, unseen]) if len(unseen) else state.scrapes
    reference = combined(combined(state.reference, state.pinned.reference), frames.declared)
    table = evidence_table(
        scrapes,
        minute_windows(frames.serving, first, last),
        kind="chained",
        cut=False,
        serving=frames.serving,
        reference=reference,
        inputs=plan.inputs,
        carried=state.carried,
        gpus=state.gpus,
        gpu_targets=frames.gpu_targets,
    )
    return _Seen(frames, reference, scrapes, unseen, absent, table)


def _with_traffic(departures: Departures, table: EvidenceTable) -> Departures:
    """With what the minutes show of who is served and who is silent."""
    traffic, silent = with_traffic(departures, table.rows)
    return replace(departures, traffic=traffic, last=silent)


def _verdicts(rows: pl.DataFrame, undecided: pl.DataFrame, plan: Plan) -> pl.DataFrame:
    """One Boolean column per rule id, beside the rows.

    What is gone of a target that may have left on purpose is unknown until that is decided.
    """
    joined = rows.join(undecided, on=[*_KEY, "end"], how="left", maintain_order="left")
    decided = pl.col("undecided").is_null()
    return joined.select(
        (
            pl.when(decided).then(rule.verdict) if _OF_COVERAGE in rule.columns else rule.verdict
        ).alias(rule.id)
        for rule in plan.enabled
    )


_OF_COVERAGE = "coverage_missing_seconds"


def _retired(
    seen: _Seen, departures: Departures
) -> tuple[datetime | None, Mapping[TargetKey, str]]:
    """End of the first minute that retires a target, and all that would be, each with why."""
    if seen.absent.is_empty():
        return None, {}
    missing = seen.absent.join(seen.pools, on=_KEY, how="left")
    going = retirements(missing, departures.traffic, departures.last)
    decided = going["end"].min()
    retired = {TargetKey(i, e): why for i, e, _, why in going.iter_rows()}
    return decided if isinstance(decided, datetime) else None, retired


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What the detectors and the replays add.

    Attributes:
        rows: evidence rows with their columns.
        seen: the minutes up to these.
        detection: what the detectors remember.
        capacity: what replays said last.
    """

    rows: pl.DataFrame
    seen: SeenMinutes
    detection: Memory
    capacity: pl.DataFrame


def _found(state: State, rows: pl.DataFrame, plan: Plan, past: PastMinutes | None) -> _Found:
    pins = state.pinned
    rows = with_releases(rows, pins.frame, state.releases)
    own = minutes(rows)
    detected, detection = detect(own, state.detection, pins.pins, plan.detection)
    if detected.width:
        rows = in_schema_order(rows.with_columns(detected))
    rows = with_refusals(rows, pins.frame)
    seen = with_these(past, state.recent, own, rows)
    rows, capacity = with_capacity(
        rows, state.capacity, seen, plan, state.targets, state.gpus, after=state.replays_after
    )
    return _Found(rows, seen, detection, capacity)


def _happened(
    state: State,
    seen: _Seen,
    rows: pl.DataFrame,
    verdicts: pl.DataFrame,
    plan: Plan,
    retired: Mapping[TargetKey, str],
    last: datetime,
) -> tuple[list[Transition], Mapping[str, Incident]]:
    """What fired and what ended, in order; incidents that are open after the minutes."""
    ever = _ever_seen(seen.table.carried)
    judged = rows.join(ever, on=_KEY, how="left", maintain_order="left")
    incidents, transitions = live_through(
        plan.enabled, state.incidents, state.targets, judged, verdicts
    )
    staying = {k: t for k, t in state.targets.items() if k not in retired}
    incidents, closed = let_go(plan.rules, incidents, staying, retired, last)
    return [*transitions, *closed], incidents


def _ever_seen(carried: Carried) -> pl.DataFrame:
    """Whether any input of a target was ever on its page."""
    seen = [pl.col(c).is_not_null() for c in carried.seen.columns if c.startswith("seen_")]
    return carried.seen.select(*_KEY, ever_seen=pl.any_horizontal(pl.lit(False), *seen))


def _without_retired(
    departures: Departures,
    retired: Mapping[TargetKey, str],
    left: frozenset[TargetKey],
    last: datetime,
) -> Departures:
    """What is remembered of sources and of silent targets after the minutes."""
    traffic, silent = kept(departures.traffic, departures.last, last)
    origins = departures.origins
    return replace(
        departures,
        traffic=traffic,
        last=silent,
        origins={k: o for k, o in origins.items() if k not in retired} if retired else origins,
        # only those that a source still lists would come back without a scrape
        retired=departures.retired | (retired.keys() - left),
    )


def _after(
    state: State,
    carry: Carried,
    found: _Found,
    incidents: Mapping[str, Incident],
    departures: Departures,
    retired: Mapping[TargetKey, str],
    last: datetime,
) -> State:
    """The state after the minutes, without what it knew of retired targets."""
    staying = {k: t for k, t in state.targets.items() if k not in retired}
    may_have_other_gpus = len(state.gpus) and found.rows["restarted"].any()  # only then
    after = replace(
        state,
        scrapes=recent(state.scrapes, last),
        gpus=state.gpus.filter(pl.col("time") >= last - HISTORY),
        evaluated_until=last,
        carried=carry,
        detection=found.detection,
        pinned=Pinned() if may_have_other_gpus else state.pinned,
        incidents=incidents,
        targets=staying if retired else state.targets,
        departures=departures,
        recent=carried(found.seen.frame, last),
        capacity=found.capacity,
    )
    return without(after, retired, before=last)
