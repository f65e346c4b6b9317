"""What ``driftwatch explain`` is asked about: a target in a window, and what is found there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.model import Finding, Incident, Target, TargetKey
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.plan import Plan

_REPLAYED = timedelta(hours=1)  # of traffic, at most, for the advice
_LEARNT = timedelta(hours=1)  # what an inferred max_num_seqs came from may lie before the window


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What was read.

    Attributes:
        scrapes: scrape table, around the window and the baseline at least.
        gpus: GPU readings of the same span.
        targets: with their pools.
        until: up to when it is known.
        incidents: open ones; a recording has none.
        origins: target → name of the source that lists it.
    """

    scrapes: pl.DataFrame
    gpus: pl.DataFrame
    targets: Mapping[TargetKey, Target]
    until: datetime
    incidents: tuple[Incident, ...] = ()
    origins: Mapping[TargetKey, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A target in a window.

    Attributes:
        history: what was read.
        target: which one.
        window: which span.
        baseline: whose lengths, rates and speed are the reference.
        plan: pools and trees.
        tree: where the walk begins.
        today: the day whose times are told without a date.
    """

    history: History
    target: Target
    window: Window
    baseline: Window | None
    plan: Plan
    tree: str
    today: date

    @property
    def source(self) -> str | None:
        """Name of the source that lists the target."""
        return self.history.origins.get(self.target.key)

    def explained(self, reference: pl.DataFrame, detected: pl.DataFrame) -> Finding:
        """What the window's scrapes say.

        Raises:
            NoVerdict: no usable scrape of the target lies in the window.
        """
        from driftwatch.pipeline.explain import explain

        return explain(
            self.history.scrapes,
            self.target,
            self.window,
            self.history.targets,
            self.plan,
            reference,
            self.history.gpus,
            source=self.source,
            today=self.today,
            detected=detected,
            tree=self.tree,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What is found.

    Attributes:
        finding: evidence, path, limits.
        window: what it is about: stored minutes are whole rows, the nearest to what was asked.
        minutes: of the target, up to the last hour.
        beside: those of its peers.
    """

    finding: Finding
    window: Window
    minutes: pl.DataFrame
    beside: pl.DataFrame

    def advised(self, asked: Asked) -> Finding:
        """The finding with what a simulation of its traffic says, where its leaf asks for one."""
        from driftwatch.pipeline.advice import explained
        from driftwatch.pipeline.minutes import with_last_speed
        from driftwatch.pipeline.question import Moment

        found, pool = self.finding, self.finding.target.pool
        twins = [one for one in asked.history.targets.values() if one.pool == pool]
        replicas = None if pool is None else len(twins)
        row = with_last_speed({**found.evidence, **found.histograms}, self.minutes)
        moment = Moment(
            found.target,
            self.window.end,
            self.minutes,
            row,
            self.beside,
            replicas,
            asked.history.gpus,
        )
        return explained(found, row, asked.plan, moment)


def history_of_recording(recording: Path, plan: Plan, at: datetime | None) -> History:
    """All of a recording, its targets as they were labelled at ``at`` or at its end.

    Raises:
        RecordingError: it cannot be read.
    """
    from driftwatch.cli.recorded import from_recording, labelled_at

    scrapes, gpus, targets, whole = from_recording(recording, plan)
    return History(scrapes, gpus, labelled_at(recording, plan, at or whole.end, targets), whole.end)


def history_of_store(
    db: Path | None,
    config: Path | None,
    plan: Plan,
    at: datetime | None,
    length: timedelta,
    baseline: Window | None,
) -> History:
    """What the store holds around the window and the baseline, with open incidents.

    Raises:
        StoreError: it is missing or does not serve.
        NoVerdict: it holds no scrape.
    """
    from driftwatch.cli.database import last_scraped, named_store
    from driftwatch.cli.recorded import print_other_servers
    from driftwatch.pipeline.stored import stored_origins, stored_targets

    with named_store(db, config) as store:
        last = last_scraped(store)
        end = at or last
        first = end - length - _LEARNT
        if baseline is not None:
            first = min(first, baseline.start)
        until = max(end, last) + timedelta(seconds=1)
        scrapes = store.scrapes(first, until)
        print_other_servers(scrapes)
        return History(
            scrapes,
            store.gpus(first, until),
            plan.assign(stored_targets(store)),
            end,
            tuple(store.open_incidents().values()),
            stored_origins(store),
        )


def asked_of(
    name: str | None,
    history: History,
    at: datetime | None,
    length: timedelta,
    *,
    baseline: Window | None,
    plan: Plan,
    tree: str,
    today: date,
) -> Asked:
    """Which target and window are meant.

    Raises:
        UsageError: no target answers to the name, or more than one that are no pool; the moment
            lies after the last scrape by more than the window.
        NoVerdict: there is no target at all.
    """
    from driftwatch.cli.recommend.asked import check_scraped, chosen_target
    from driftwatch.pipeline.explain import window_ending

    reach = f"scrapes reach to {history.until:%Y-%m-%dT%H:%MZ}"
    check_scraped(at, history.until, length, reach)
    window = window_ending(at or history.until, length)
    chosen = chosen_target(name, history.targets, history.scrapes, window.end)
    return Asked(history, chosen, window, baseline, plan, tree, today)


def answer_of_recording(asked: Asked, recording: Path, pins_file: Path | None) -> Answer:
    """The pipeline runs over the recording up to the window's end, as ``replay`` does.

    Raises:
        ConfigError: the pins are no export, or some of it is wrong.
        NoVerdict: no usable scrape of the target lies in the window.
    """
    from driftwatch.cli.proposed import pins_from
    from driftwatch.cli.recorded import found_in, labelled_at
    from driftwatch.pipeline.explain import Window

    history, end, baseline = asked.history, asked.window.end, asked.baseline
    pins, pinned_of = pins_from(pins_file), history.targets
    if baseline is not None:
        pinned_of = labelled_at(recording, asked.plan, baseline.end, pinned_of)
    found = found_in(
        history.scrapes,
        history.gpus,
        asked.target,
        history.targets,
        asked.plan,
        Window(end - _REPLAYED, end),
        pins=pins,
        baseline=baseline,
        pinned_of=pinned_of,
    )
    finding = asked.explained(found.reference, found.detected)
    return Answer(finding, asked.window, found.minutes, found.beside)


def answer_of_store(asked: Asked, db: Path | None, config: Path | None) -> Answer:
    """From the window's scrapes, or from stored minutes where these know more of it.

    Raises:
        UsageError: the store knows nothing of the baseline.
        NoVerdict: it knows nothing of the target in the window.
    """
    from driftwatch.cli.database import named_store
    from driftwatch.pipeline.past_windows import (
        detected_from_store,
        explain_past,
        is_past,
        reference_from_store,
    )
    from driftwatch.pipeline.question import peers_of

    history, target, window, plan = asked.history, asked.target, asked.window, asked.plan
    scrapes, gpus, targets = history.scrapes, history.gpus, history.targets
    past = None
    with named_store(db, config) as store:
        reference = reference_from_store(store, scrapes, gpus, asked.baseline, targets, plan)
        if is_past(store, scrapes, target.key, window):
            past = explain_past(
                store, target, window, plan, reference, today=asked.today, tree=asked.tree
            )
        detected = detected_from_store(store, target.key, window.end)
        minutes = store.past(window.end - _REPLAYED, window.end, [target.key])
        twins = peers_of(target, targets, plan)
        beside = store.past(window.end - _REPLAYED, window.end, twins)
    finding, about = past or (asked.explained(reference, detected), window)
    return Answer(finding, about, minutes, beside)
