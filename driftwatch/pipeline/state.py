"""The state that one tick hands to the next, and the outcome of a tick.

The store gives all of the state back (:mod:`driftwatch.pipeline.stored_state`), but for the open
minute: that is collected again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.in_force import InForce, no_releases
from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.schema import (
    KEY_COLUMNS,
    SourceProblem,
    empty_scrapes,
    keys_frame,
    scrapes_once,
)
from driftwatch.detect.baselines import Baselines
from driftwatch.diagnose.evidence_table import HISTORY, no_inputs_seen, no_recent
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.minutes.scheduler import no_samples
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.detection import Detection
from driftwatch.pipeline.plan import TargetFrames
from driftwatch.pipeline.verifications import Verifications
from driftwatch.store.history import TargetAdvice
from driftwatch.store.minute_columns import no_minutes

__all__ = ["HISTORY", "Outcome", "State"]

# The first question to a source covers this much; GPU readings are kept as long.
FIRST_LOOK = timedelta(minutes=16)


@dataclass(frozen=True, slots=True)
class State:
    """The state that one tick hands to the next."""

    # of the open minute, and each target's last ones (:func:`last_scrapes`)
    scrapes: pl.DataFrame = field(default_factory=empty_scrapes)
    # GPU readings of the last :data:`FIRST_LOOK`
    gpus: pl.DataFrame = field(default_factory=empty_gpus)
    # source name → the time up to which it has answered
    collected_until: Mapping[str, datetime] = field(default_factory=dict)
    # end of the last evaluated minute, None before the first
    evaluated_until: datetime | None = None
    # :data:`driftwatch.diagnose.evidence_table.RECENT`, of the last :data:`HISTORY`
    minutes: pl.DataFrame = field(default_factory=no_recent)
    # when each input was last on a target's page, up to a day ago
    inputs_seen: pl.DataFrame = field(default_factory=no_inputs_seen)
    # the sample of each target's last scrape, which the next one may repeat
    samples: pl.DataFrame = field(default_factory=no_samples)
    incidents: Mapping[str, Incident] = field(default_factory=dict)  # open incidents by identity
    ended: tuple[Incident, ...] = ()  # those that resolved shortly before
    # targets known now, missing ones included, with their pools
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)
    # target → name of the source that listed it last
    origins: Mapping[TargetKey, str] = field(default_factory=dict)
    baselines: Baselines = field(default_factory=Baselines)  # in force
    # recent minutes and references of the detectors
    detection: Detection = field(default_factory=Detection)
    # baselines per target, made anew when baselines or targets change
    in_force: InForce = field(default_factory=InForce)
    # the targets as frames, made anew when targets or plan change
    frames: TargetFrames | None = None
    # the last release of each target, and since when it runs
    releases: pl.DataFrame = field(default_factory=no_releases)
    verifications: Verifications = field(default_factory=Verifications)
    # simulate advice only for minutes that end after this: a tick that catches up after a restart
    # would take too long otherwise; None = for every minute
    simulates_after: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a tick."""

    rows: pl.DataFrame  # evidence rows of the minutes evaluated in this tick
    verdicts: pl.DataFrame  # one Boolean column per enabled rule id, beside ``rows``
    # state changes that are sent, each incident with its page
    transitions: tuple[Transition, ...] = ()
    scrapes: pl.DataFrame = field(default_factory=empty_scrapes)  # collected by this tick
    problems: tuple[SourceProblem, ...] = ()  # parts of answers that could not be read
    # dropped targets → why
    retired: Mapping[TargetKey, str] = field(default_factory=dict)
    # names that stand for another server now
    reborn: frozenset[TargetKey] = frozenset()
    advices: tuple[TargetAdvice, ...] = ()  # answers to the questions of its pages
    # :data:`driftwatch.store.minute_columns.STORED_SCHEMA`, beside ``rows``
    minutes: pl.DataFrame = field(default_factory=no_minutes)
    # those known after it, with their pools
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)
    # instance whose scrapes made the evaluation fail → the traceback
    not_evaluated: Mapping[str, str] = field(default_factory=dict)


def merge(outcomes: Collection[Outcome]) -> Outcome:
    """Several outcomes as one, in this order: of pieces of one tick, or of several batches."""
    evaluated = [one for one in outcomes if one.rows.width]
    return Outcome(
        rows=pl.concat([o.rows for o in evaluated]) if evaluated else pl.DataFrame(),
        verdicts=pl.concat([o.verdicts for o in evaluated]) if evaluated else pl.DataFrame(),
        transitions=tuple(t for one in outcomes for t in one.transitions),
        scrapes=pl.concat([empty_scrapes(), *(one.scrapes for one in outcomes)]),
        problems=tuple(dict.fromkeys(problem for one in outcomes for problem in one.problems)),
        retired={key: why for one in outcomes for key, why in one.retired.items()},
        reborn=frozenset[TargetKey]().union(*(one.reborn for one in outcomes)),
        advices=tuple(answer for one in outcomes for answer in one.advices),
        minutes=pl.concat([no_minutes(), *(one.minutes for one in outcomes)]),
        targets={key: target for one in outcomes for key, target in one.targets.items()},
        not_evaluated={name: why for one in outcomes for name, why in one.not_evaluated.items()},
    )


def without(state: State, keys: Iterable[TargetKey], before: datetime | None = None) -> State:
    """The state without these targets' scrapes and what was inferred from them, except days.

    Scrapes from ``before`` on stay, as a target may return while driftwatch catches up.
    """
    leaving = keys_frame(keys)
    if leaving.is_empty():
        return state

    def others(of: pl.DataFrame) -> pl.DataFrame:
        return of.join(leaving, on=KEY_COLUMNS, how="anti", maintain_order="left")

    scrapes = others(state.scrapes)
    if before is not None:
        later = state.scrapes.filter(pl.col("time") >= before)
        later = later.join(leaving, on=KEY_COLUMNS, how="semi")
        scrapes = merge_scrapes([scrapes, later]) if len(later) else scrapes
    return replace(
        state,
        scrapes=scrapes,
        minutes=others(state.minutes),
        inputs_seen=others(state.inputs_seen),
        samples=others(state.samples),
        detection=state.detection.without(TargetKey(*row) for row in leaving.iter_rows()),
    )


def merge_scrapes(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Scrapes of several sources, one row per target and time."""
    return scrapes_once(pl.concat([empty_scrapes(), *frames]))


def last_scrapes(scrapes: pl.DataFrame, evaluated_until: datetime) -> pl.DataFrame:
    """Scrapes that the next minutes need: the open minute's, and the last usable one before it."""
    done = (pl.col("time") < evaluated_until) & pl.col("ok")
    last = done & (done.cum_sum(reverse=True).over(KEY_COLUMNS) == 1)
    wanted = scrapes.select((pl.col("time") >= evaluated_until) | last).to_series()
    return scrapes.filter(wanted)
