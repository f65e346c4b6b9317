"""The state that one tick hands to the next, and the outcome of a tick.

The store keeps all of the state (:mod:`driftwatch.pipeline.stored_state`) except the open minute,
which is collected again.
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

# The first query to a source covers this much; GPU readings are kept as long.
FIRST_LOOK = timedelta(minutes=16)


@dataclass(frozen=True, slots=True)
class State:
    """The state that one tick hands to the next."""

    # of the open minute, and each target's last one before it (:func:`last_scrapes`)
    scrapes: pl.DataFrame = field(default_factory=empty_scrapes)
    # GPU readings of the last :data:`FIRST_LOOK`
    gpus: pl.DataFrame = field(default_factory=empty_gpus)
    # source name → the time up to which it has answered
    collected_until: Mapping[str, datetime] = field(default_factory=dict)
    # end of the last evaluated minute, None before the first
    evaluated_until: datetime | None = None
    # :data:`driftwatch.diagnose.evidence_table.RECENT`, of the last :data:`HISTORY`
    minutes: pl.DataFrame = field(default_factory=no_recent)
    # when each input was last in a target's scrape, up to a day ago
    inputs_seen: pl.DataFrame = field(default_factory=no_inputs_seen)
    # the scheduler's sample in each target's last scrape; the next scrape may repeat it
    samples: pl.DataFrame = field(default_factory=no_samples)
    incidents: Mapping[str, Incident] = field(default_factory=dict)  # open incidents by key
    ended: tuple[Incident, ...] = ()  # recently resolved ones
    # known targets with their pools, missing ones included
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)
    # target → name of the source that listed it last
    origins: Mapping[TargetKey, str] = field(default_factory=dict)
    baselines: Baselines = field(default_factory=Baselines)  # in force
    # recent minutes and references of the detectors
    detection: Detection = field(default_factory=Detection)
    # baselines per target, computed again when baselines or targets change
    in_force: InForce = field(default_factory=InForce)
    # frames of the targets, built again when targets or plan change
    frames: TargetFrames | None = None
    # each target's last release and its start
    releases: pl.DataFrame = field(default_factory=no_releases)
    verifications: Verifications = field(default_factory=Verifications)
    # simulate advice only for minutes that end after this, because a tick that catches up must not
    # take too long; None = for every minute
    simulates_after: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a tick."""

    rows: pl.DataFrame  # evidence rows of this tick's minutes
    verdicts: pl.DataFrame  # one Boolean column per enabled rule id, beside ``rows``
    # transitions to send, each incident with its page
    transitions: tuple[Transition, ...] = ()
    scrapes: pl.DataFrame = field(default_factory=empty_scrapes)  # collected by this tick
    problems: tuple[SourceProblem, ...] = ()  # unreadable parts of answers
    # retired targets → why
    retired: Mapping[TargetKey, str] = field(default_factory=dict)
    # keys that now belong to another server
    reborn: frozenset[TargetKey] = frozenset()
    advices: tuple[TargetAdvice, ...] = ()  # answers for its pages
    # :data:`driftwatch.store.minute_columns.STORED_SCHEMA`, beside ``rows``
    minutes: pl.DataFrame = field(default_factory=no_minutes)
    # known after the tick, with their pools
    targets: Mapping[TargetKey, Target] = field(default_factory=dict)
    # instance whose scrapes made the evaluation fail → traceback
    not_evaluated: Mapping[str, str] = field(default_factory=dict)


def merge(outcomes: Collection[Outcome]) -> Outcome:
    """Several outcomes as one, in order: pieces of a tick, or batches."""
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
    """The state without these targets' scrapes and inferences, except learnt days.

    Scrapes from ``before`` on stay: a target may return while driftwatch catches up.
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
    """Scrapes for the next minutes: the open minute's, and each target's last usable one before."""
    done = (pl.col("time") < evaluated_until) & pl.col("ok")
    last = done & (done.cum_sum(reverse=True).over(KEY_COLUMNS) == 1)
    wanted = scrapes.select((pl.col("time") >= evaluated_until) | last).to_series()
    return scrapes.filter(wanted)
