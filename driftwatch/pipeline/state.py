"""What one tick hands to the next, and what it decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.in_force import InForce, no_releases
from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.schema import KEY_COLUMNS, SourceProblem, empty_scrapes, scrapes_once
from driftwatch.detect.baselines import Baselines
from driftwatch.diagnose.evidence_table import HISTORY, no_inputs_seen, no_recent, no_rows
from driftwatch.minutes.scheduler import no_samples
from driftwatch.model import Incident, Target, TargetKey, Transition
from driftwatch.pipeline.departures import Departures, no_looks
from driftwatch.pipeline.detection import Detection
from driftwatch.pipeline.plan import TargetFrames
from driftwatch.pipeline.question import TargetAdvice

__all__ = ["HISTORY", "Outcome", "State"]

# A source that was never asked is asked for so much; GPU readings are kept as long.
FIRST_LOOK = timedelta(minutes=16)


@dataclass(frozen=True, slots=True)
class State:
    """What one tick hands to the next."""

    # those of the open minute, and of each target its last ones (:func:`last_scrapes`)
    scrapes: pl.DataFrame = field(default_factory=empty_scrapes)
    # GPU readings of the last :data:`FIRST_LOOK`
    gpus: pl.DataFrame = field(default_factory=empty_gpus)
    # per source name, up to where it was asked
    collected_until: Mapping[str, datetime] = field(default_factory=dict)
    # end of the last evaluated minute, None before the first
    evaluated_until: datetime | None = None
    # :data:`driftwatch.diagnose.evidence_table.RECENT`, of the last :data:`HISTORY`; whoever lacks
    # them reads them from the store
    minutes: pl.DataFrame = field(default_factory=no_recent)
    # when each input was on a target's page last; a day is remembered
    inputs_seen: pl.DataFrame = field(default_factory=no_inputs_seen)
    # what the last scrape of each target showed, which the next one may repeat
    samples: pl.DataFrame = field(default_factory=no_samples)
    incidents: Mapping[str, Incident] = field(default_factory=dict)  # open incidents by identity
    # targets known now, missing ones included, with their pools
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)
    # who came from where, and what silent targets carried
    departures: Departures = field(default_factory=Departures)
    baselines: Baselines = field(default_factory=Baselines)  # in force
    # minutes at hand and references of the detectors
    detection: Detection = field(default_factory=Detection)
    # the baselines beside the targets, made anew when one of both changes
    in_force: InForce = field(default_factory=InForce)
    # the targets as frames, made anew when targets or plan change
    frames: TargetFrames | None = None
    # which release each target ran last, and since when
    releases: pl.DataFrame = field(default_factory=no_releases)
    # :data:`driftwatch.pipeline.departures.LOOKS_SCHEMA`: minutes that are not evaluated yet, in
    # which targets of any batch were scraped; none of one batch
    looks: pl.DataFrame = field(default_factory=no_looks)
    # simulate advice only for minutes that end after this: a tick that catches up after a restart
    # would take too long otherwise; None = for every minute
    simulates_after: datetime | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Minutes of the same targets, and who went before and after them: what closes incidents."""

    first: datetime  # start of the first minute
    last: datetime  # end of the last one; ``first`` where there is no minute
    targets: Mapping[TargetKey, Target]  # with their pools
    # those that were let go before the first minute, and with the last one → why
    departed: Mapping[TargetKey, str] = field(default_factory=dict)
    retired: Mapping[TargetKey, str] = field(default_factory=dict)
    # those behind whose name another server stands from the first minute on
    reborn: frozenset[TargetKey] = frozenset()

    @property
    def staying(self) -> Mapping[TargetKey, Target]:
        """The targets that are left after the last minute."""
        return {key: one for key, one in self.targets.items() if key not in self.retired}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tick decided."""

    rows: pl.DataFrame  # evidence rows of the minutes evaluated in this tick
    verdicts: pl.DataFrame  # one Boolean column per enabled rule id, beside ``rows``
    # state changes somebody is told of, each incident with its page
    transitions: tuple[Transition, ...] = ()
    scrapes: pl.DataFrame = field(default_factory=empty_scrapes)  # scrapes that this tick brought
    problems: tuple[SourceProblem, ...] = ()  # what the sources could not read
    gpus: pl.DataFrame = field(default_factory=empty_gpus)  # GPU readings that this tick brought
    # targets that were let go, with the reason
    retired: Mapping[TargetKey, str] = field(default_factory=dict)
    # targets behind whose name another server stands now
    reborn: frozenset[TargetKey] = frozenset()
    advices: tuple[TargetAdvice, ...] = ()  # answers to the questions of its pages
    # :data:`driftwatch.diagnose.evidence_table.ROW_SCHEMA`, beside ``rows``
    minutes: pl.DataFrame = field(default_factory=no_rows)
    stretches: tuple[Stretch, ...] = ()  # its minutes, by who was there
    # those known after it, with their pools
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)
    # instance whose scrapes no minute could be made of → the traceback
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

    scrapes = others(state.scrapes)
    if before is not None:
        later = state.scrapes.filter(pl.col("time") >= before)
        later = later.join(frame, on=KEY_COLUMNS, how="semi")
        scrapes = together([scrapes, later]) if len(later) else scrapes
    return replace(
        state,
        scrapes=scrapes,
        minutes=others(state.minutes),
        inputs_seen=others(state.inputs_seen),
        samples=others(state.samples),
        detection=state.detection.without(TargetKey(*row) for row in rows),
    )


def together(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Scrapes of several sources, one row per target and time."""
    return scrapes_once(pl.concat([empty_scrapes(), *frames]))


def last_scrapes(scrapes: pl.DataFrame, evaluated_until: datetime) -> pl.DataFrame:
    """Scrapes that the next minutes need: the open minute's, and the last usable one before it."""
    done = (pl.col("time") < evaluated_until) & pl.col("ok")
    last = done & (done.cum_sum(reverse=True).over(KEY_COLUMNS) == 1)
    wanted = scrapes.select((pl.col("time") >= evaluated_until) | last).to_series()
    return scrapes.filter(wanted)
