"""What one tick hands to the next, and what it found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.pinned import Pinned, no_releases
from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.schema import KEY_COLUMNS, TIME, SourceProblem, empty_scrapes, told_once
from driftwatch.detect.pins import Pins
from driftwatch.detect.reference import no_reference
from driftwatch.detect.stage import Memory
from driftwatch.diagnose.evidence_table import Carried
from driftwatch.diagnose.thresholds import BINDING_WINDOW_SECONDS
from driftwatch.model import Incident, Target, TargetKey, Transition
from driftwatch.pipeline.capacity import nothing_told
from driftwatch.pipeline.departures import Departures
from driftwatch.pipeline.past_minutes import nothing_recent
from driftwatch.pipeline.replaying import Replayed
from driftwatch.signals.continuity import MAX_GAP_SECONDS

# The longest window, the look-back before it in which its base scrape may lie, and a minute for
# the grid: with less, the answer would depend on how minutes are split over ticks.
HISTORY = timedelta(seconds=BINDING_WINDOW_SECONDS + MAX_GAP_SECONDS) + timedelta(minutes=1)


FORGOTTEN_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "at": TIME,  # after the minute that ends then
}


def nothing_forgotten() -> pl.DataFrame:
    """Targets that the detectors forgot: none."""
    return pl.DataFrame(schema=FORGOTTEN_SCHEMA)


def forgotten(keys: Iterable[TargetKey], at: datetime | None) -> pl.DataFrame:
    """Targets that are forgotten after a minute; none before the first one."""
    rows = [] if at is None else [(*key, at) for key in sorted(keys)]
    return pl.DataFrame(rows, schema=FORGOTTEN_SCHEMA, orient="row")


@dataclass(frozen=True, slots=True)
class State:
    """What one tick hands to the next.

    Attributes:
        scrapes: the last minutes of scrapes (:data:`HISTORY`), those of the open minute, and of
            a target without a usable one among them its last usable one, however old: whether it
            restarted is seen from there.
        gpus: GPU readings of the same span.
        collected_until: per source name, up to where it was asked.
        evaluated_until: end of the last evaluated minute, None before the first.
        carried: what outlives the scrapes.
        incidents: open incidents by identity.
        targets: targets known now, those that are missing included, with their pools.
        departures: who came from where, and what is remembered of those that are silent.
        reference: measured reference rows; declared ones are added from the plan.
        pins: in force.
        detection: what the detectors remember.
        pinned: the pins beside the targets, made anew when one of both changes.
        releases: which release each target ran last, and since when.
        recent: :data:`driftwatch.pipeline.past_minutes.RECENT_SCHEMA`, the last minutes that no
            other past of the tick knows: of an hour without a store, of one tick with it.
        capacity: :data:`driftwatch.pipeline.capacity.CAPACITY_SCHEMA`, what replays said last.
        replays_after: nothing is replayed for minutes that end then or before: those that a live
            tick catches up after a stop, or it would not be over in time; None = for all.
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
    pins: Pins = field(default_factory=Pins)
    detection: Memory = field(default_factory=Memory)
    pinned: Pinned = field(default_factory=Pinned)
    releases: pl.DataFrame = field(default_factory=no_releases)
    recent: pl.DataFrame = field(default_factory=nothing_recent)
    capacity: pl.DataFrame = field(default_factory=nothing_told)
    replays_after: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tick found.

    Attributes:
        rows: evidence rows of the minutes evaluated in this tick.
        verdicts: one Boolean column per enabled rule id, beside ``rows``.
        transitions: state changes somebody is told of, each incident with its page.
        scrapes: scrapes that this tick brought.
        problems: what the sources could not read.
        gpus: GPU readings that this tick brought.
        unseen: rows that were made, not ok, of minutes of which no source has a scrape.
        retired: targets that were let go, with the reason.
        reborn: targets behind whose name another server stands now.
        forgotten: :data:`FORGOTTEN_SCHEMA`, the targets that the detectors forgot.
        replayed: what was replayed for its pages.
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
    forgotten: pl.DataFrame = field(default_factory=nothing_forgotten)
    replayed: tuple[Replayed, ...] = ()
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)
    not_evaluated: Mapping[str, str] = field(default_factory=dict)


def without(state: State, keys: Iterable[TargetKey], before: datetime | None = None) -> State:
    """The state without what it remembers of some targets: their scrapes, and what was inferred.

    Scrapes from ``before`` on stay: catching up, a target may be back by then.
    """
    gone = [tuple(key) for key in keys]
    if not gone:
        return state
    frame = pl.DataFrame(gone, schema=dict.fromkeys(KEY_COLUMNS, pl.String), orient="row")

    def others(of: pl.DataFrame) -> pl.DataFrame:
        return of.join(frame, on=KEY_COLUMNS, how="anti", maintain_order="left")

    carried, scrapes = state.carried, state.scrapes
    later = scrapes.clear()
    if before is not None:
        later = scrapes.filter(pl.col("time") >= before).join(frame, on=KEY_COLUMNS, how="semi")
    return replace(
        state,
        scrapes=together([others(scrapes), later]) if len(later) else others(scrapes),
        carried=replace(
            carried,
            plateau=others(carried.plateau),
            alive=others(carried.alive),
            seen=others(carried.seen),
        ),
        departures=replace(state.departures, last=others(state.departures.last)),
        detection=state.detection.without(frame),
    )


def together(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Scrapes of several sources, one row per target and time."""
    return told_once(pl.concat([empty_scrapes(), *frames]))
