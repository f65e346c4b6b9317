"""The state that one tick hands to the next, and the outcome of a tick."""

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
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.minutes.scheduler import no_samples
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.departures import Departures, no_looks
from driftwatch.pipeline.detection import Detection
from driftwatch.pipeline.plan import TargetFrames
from driftwatch.pipeline.question import TargetAdvice

__all__ = ["HISTORY", "Outcome", "State"]

# A source is first asked for this much; GPU readings are kept as long.
FIRST_LOOK = timedelta(minutes=16)


@dataclass(frozen=True, slots=True)
class State:
    """The state that one tick hands to the next."""

    # of the open minute, and each target's last ones (:func:`last_scrapes`)
    scrapes: pl.DataFrame = field(default_factory=empty_scrapes)
    # GPU readings of the last :data:`FIRST_LOOK`
    gpus: pl.DataFrame = field(default_factory=empty_gpus)
    # source name → the time up to which it was asked
    collected_until: Mapping[str, datetime] = field(default_factory=dict)
    # end of the last evaluated minute, None before the first
    evaluated_until: datetime | None = None
    # :data:`driftwatch.diagnose.evidence_table.RECENT`, of the last :data:`HISTORY`; whoever lacks
    # them reads them from the store
    minutes: pl.DataFrame = field(default_factory=no_recent)
    # when each input was last on a target's page, up to a day ago
    inputs_seen: pl.DataFrame = field(default_factory=no_inputs_seen)
    # the sample of each target's last scrape, which the next one may repeat
    samples: pl.DataFrame = field(default_factory=no_samples)
    incidents: Mapping[str, Incident] = field(default_factory=dict)  # open incidents by identity
    # targets known now, missing ones included, with their pools
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)
    # arrivals and departures of targets
    departures: Departures = field(default_factory=Departures)
    baselines: Baselines = field(default_factory=Baselines)  # in force
    # recent minutes and references of the detectors
    detection: Detection = field(default_factory=Detection)
    # baselines per target, made anew when baselines or targets change
    in_force: InForce = field(default_factory=InForce)
    # the targets as frames, made anew when targets or plan change
    frames: TargetFrames | None = None
    # the last release of each target, and since when it runs
    releases: pl.DataFrame = field(default_factory=no_releases)
    # :data:`driftwatch.pipeline.departures.LOOKS_SCHEMA`: minutes that are not evaluated yet, in
    # which targets of any batch were scraped; none of one batch
    looks: pl.DataFrame = field(default_factory=no_looks)
    # simulate advice only for minutes that end after this: a tick that catches up after a restart
    # would take too long otherwise; None = for every minute
    simulates_after: datetime | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Minutes with the same targets, and those that left before and after, to close incidents."""

    first: datetime  # start of the first minute
    last: datetime  # end of the last one; ``first`` where there is no minute
    targets: Mapping[TargetKey, Target]  # with their pools
    # targets dropped before the first minute, and with the last one → why
    departed: Mapping[TargetKey, str] = field(default_factory=dict)
    retired: Mapping[TargetKey, str] = field(default_factory=dict)
    # names that stand for another server from the first minute on
    reborn: frozenset[TargetKey] = frozenset()

    @property
    def staying(self) -> Mapping[TargetKey, Target]:
        """The targets after the last minute."""
        return {key: one for key, one in self.targets.items() if key not in self.retired}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a tick."""

    rows: pl.DataFrame  # evidence rows of the minutes evaluated in this tick
    verdicts: pl.DataFrame  # one Boolean column per enabled rule id, beside ``rows``
    # state changes that are sent, each incident with its page
    transitions: tuple[Transition, ...] = ()
    scrapes: pl.DataFrame = field(default_factory=empty_scrapes)  # scrapes that this tick brought
    problems: tuple[SourceProblem, ...] = ()  # parts of answers that could not be read
    gpus: pl.DataFrame = field(default_factory=empty_gpus)  # GPU readings that this tick brought
    # dropped targets → why
    retired: Mapping[TargetKey, str] = field(default_factory=dict)
    # names that stand for another server now
    reborn: frozenset[TargetKey] = frozenset()
    advices: tuple[TargetAdvice, ...] = ()  # answers to the questions of its pages
    # :data:`driftwatch.diagnose.evidence_table.ROW_SCHEMA`, beside ``rows``
    minutes: pl.DataFrame = field(default_factory=no_rows)
    stretches: tuple[Stretch, ...] = ()  # its minutes, by who was there
    # those known after it, with their pools
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)
    # instance whose scrapes made the evaluation fail → the traceback
    not_evaluated: Mapping[str, str] = field(default_factory=dict)


def without(state: State, keys: Iterable[TargetKey], before: datetime | None = None) -> State:
    """The state without these targets: their scrapes and everything inferred from them, but days.

    Scrapes from ``before`` on stay: while catching up, a target may return later.
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
