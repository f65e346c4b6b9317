"""What one tick hands to the next, and what it decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import polars as pl

from driftwatch.baselines.in_force import InForce, no_releases
from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.schema import KEY_COLUMNS, TIME, SourceProblem, empty_scrapes, scrapes_once
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.reference import no_reference
from driftwatch.detect.stage import Memory
from driftwatch.diagnose.evidence_table import HISTORY, Carried
from driftwatch.model import Incident, Target, TargetKey, Transition
from driftwatch.pipeline.capacity import no_capacity
from driftwatch.pipeline.departures import Departures
from driftwatch.pipeline.minutes import no_recent_minutes
from driftwatch.pipeline.plan import TargetFrames
from driftwatch.pipeline.question import TargetAdvice

__all__ = ["HISTORY", "Outcome", "State"]

FORGOTTEN_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "at": TIME,  # after the minute that ends then
}


def forgotten(keys: Iterable[TargetKey] = (), at: datetime | None = None) -> pl.DataFrame:
    """Targets that the detectors forget after a minute; none before the first one."""
    rows = [] if at is None else [(*key, at) for key in sorted(keys)]
    return pl.DataFrame(rows, schema=FORGOTTEN_SCHEMA, orient="row")


@dataclass(frozen=True, slots=True)
class State:
    """What one tick hands to the next.

    Attributes:
        scrapes: those of the open minute, and of each target its last ones (:func:`last_scrapes`).
        gpus: GPU readings of the last :data:`HISTORY`.
        collected_until: per source name, up to where it was asked.
        evaluated_until: end of the last evaluated minute, None before the first.
        carried: what outlives the scrapes.
        incidents: open incidents by identity.
        targets: targets known now, missing ones included, with their pools.
        departures: who came from where, and what silent targets carried.
        reference: measured reference rows; declared ones are added from the plan.
        pins: in force.
        detection: the memory of the detectors.
        pinned: the pins beside the targets, made anew when one of both changes.
        frames: the targets as frames, made anew when targets or plan change.
        releases: which release each target ran last, and since when.
        recent: :data:`driftwatch.pipeline.minutes.RECENT_SCHEMA`: minutes that the past of the tick
            does not know; the last hour where it has no store.
        capacity: :data:`driftwatch.pipeline.capacity.CAPACITY_SCHEMA`: the last answers.
        replays_after: minutes that end then or before are not replayed: a live tick catches them up
            after a stop, and would not be over in time; None = all are.
    """

    scrapes: pl.DataFrame = field(default_factory=empty_scrapes)
    gpus: pl.DataFrame = field(default_factory=empty_gpus)
    collected_until: Mapping[str, datetime] = field(default_factory=dict)
    evaluated_until: datetime | None = None
    carried: Carried = field(default_factory=Carried)
    incidents: Mapping[str, Incident] = field(default_factory=dict)
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)
    departures: Departures = field(default_factory=Departures)
    reference: pl.DataFrame = field(default_factory=no_reference)
    baselines: Baselines = field(default_factory=Baselines)
    detection: Memory = field(default_factory=Memory)
    in_force: InForce = field(default_factory=InForce)
    frames: TargetFrames | None = None
    releases: pl.DataFrame = field(default_factory=no_releases)
    recent: pl.DataFrame = field(default_factory=no_recent_minutes)
    capacity: pl.DataFrame = field(default_factory=no_capacity)
    replays_after: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tick decided.

    Attributes:
        rows: evidence rows of the minutes evaluated in this tick.
        verdicts: one Boolean column per enabled rule id, beside ``rows``.
        transitions: state changes somebody is told of, each incident with its page.
        scrapes: scrapes that this tick brought.
        problems: what the sources could not read.
        gpus: GPU readings that this tick brought.
        unseen: failed scrapes made for minutes of which no source has one.
        retired: targets that were let go, with the reason.
        reborn: targets behind whose name another server stands now.
        forgotten: :data:`FORGOTTEN_SCHEMA`, the targets that the detectors forgot.
        advices: answers to the questions of its pages.
        targets: those known after it, with their pools.
        not_evaluated: instance whose scrapes no minute could be made of → the traceback.
    """

    rows: pl.DataFrame
    verdicts: pl.DataFrame
    transitions: tuple[Transition, ...] = ()
    scrapes: pl.DataFrame = field(default_factory=empty_scrapes)
    problems: tuple[SourceProblem, ...] = ()
    gpus: pl.DataFrame = field(default_factory=empty_gpus)
    unseen: pl.DataFrame = field(default_factory=empty_scrapes)
    retired: Mapping[TargetKey, str] = field(default_factory=dict)
    reborn: frozenset[TargetKey] = frozenset()
    forgotten: pl.DataFrame = field(default_factory=forgotten)
    advices: tuple[TargetAdvice, ...] = ()
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)
    not_evaluated: Mapping[str, str] = field(default_factory=dict)


def without(state: State, keys: Iterable[TargetKey], before: datetime | None = None) -> State:
    """The state without what it remembers of some targets: their scrapes, and what was inferred.

    Scrapes from ``before`` on stay: catching up, a target may be back by then.
    """
    rows = [tuple(key) for key in keys]
    if not rows:
        return state
    frame = pl.DataFrame(rows, schema=dict.fromkeys(KEY_COLUMNS, pl.String), orient="row")

    def others(of: pl.DataFrame) -> pl.DataFrame:
        return of.join(frame, on=KEY_COLUMNS, how="anti", maintain_order="left")

    carried, scrapes = state.carried, others(state.scrapes)
    if before is not None:
        later = state.scrapes.filter(pl.col("time") >= before)
        later = later.join(frame, on=KEY_COLUMNS, how="semi")
        scrapes = together([scrapes, later]) if len(later) else scrapes
    return replace(
        state,
        scrapes=scrapes,
        carried=replace(
            carried,
            plateau=others(carried.plateau),
            alive=others(carried.alive),
            inputs_seen=others(carried.inputs_seen),
        ),
        departures=replace(state.departures, last=others(state.departures.last)),
        detection=state.detection.without(frame),
    )


def together(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Scrapes of several sources, one row per target and time."""
    return scrapes_once(pl.concat([empty_scrapes(), *frames]))


def last_scrapes(scrapes: pl.DataFrame, evaluated_until: datetime) -> pl.DataFrame:
    """Scrapes that the next minutes need in full: the open minute, and of each target the last.

    That is its last usable scrape, from which the next one counts on, and its last two of any
    kind, which say how often it is scraped. The rest is in ``Carried.past``.
    """
    done = pl.col("time") < evaluated_until

    def last(rows: pl.Expr, count: int) -> pl.Expr:
        return rows & (rows.cum_sum(reverse=True).over(KEY_COLUMNS) <= count)

    wanted = scrapes.select(~done | last(done, 2) | last(done & pl.col("ok"), 1)).to_series()
    return scrapes.filter(wanted)
