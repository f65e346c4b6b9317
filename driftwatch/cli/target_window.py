"""A target in a window, as ``explain`` and ``recommend`` read it from the store or a recording."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.options import Progress, print_problems
from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.cli.history import History
    from driftwatch.collect.schema import Collected
    from driftwatch.detect.baselines import Baselines
    from driftwatch.model import Finding, Incident, Target, TargetKey
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.question import Moment

LISTED = 8  # targets that an error names on a terminal
_RECENT = timedelta(minutes=10)  # whose queue decides which server of a pool is meant
_LEARNT = timedelta(hours=1)  # what an inferred max_num_seqs came from may lie before the window


@dataclass(frozen=True, slots=True, eq=False)
class HistoryData:
    """What was read of a history."""

    # scrapes and GPU readings around the window and the baseline at least, targets with pools
    collected: Collected
    first: datetime  # the first scrape that was meant
    last: datetime  # the last scrape
    incidents: tuple[Incident, ...] = ()  # open ones; a recording has none
    # target → name of the source that lists it
    origins: Mapping[TargetKey, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class TargetWindow:
    """A target in a window, before it is evaluated."""

    history: History  # store or recording, plan, baseline
    data: HistoryData
    target: Target
    window: Window
    traffic: timedelta  # length of the minutes that an advice is made of, up to the window's end
    tree: str  # where the walk begins
    today: date  # the day whose times are printed without a date

    @property
    def source(self) -> str | None:
        """Name of the source that lists the target."""
        return self.data.origins.get(self.target.key)

    @property
    def replicas(self) -> int | None:
        """Engines of the target's pool; None where it is in no pool."""
        pool, targets = self.target.pool, self.data.collected.targets
        return None if pool is None else sum(t.pool == pool for t in targets.values())

    def explained(self, reference: pl.DataFrame, detected: pl.DataFrame) -> Finding:
        """What the window's scrapes say.

        Raises:
            NoVerdict: no usable scrape of the target lies in the window.
        """
        from driftwatch.pipeline.explain import explain

        return explain(
            self.data.collected,
            self.target,
            self.window,
            self.history.plan,
            reference,
            source=self.source,
            today=self.today,
            detected=detected,
            tree=self.tree,
        )

    def evaluated(self, *, finding_needed: bool = True) -> Evaluated:
        """Evidence and minutes, of the store or of a recording.

        Args:
            finding_needed: without a usable scrape in the window there is no verdict; else no
                finding: the minutes may still say something.

        Raises:
            ConfigError: the pins are no export, or some of it is wrong.
            UsageError: the store knows nothing of the baseline.
            NoVerdict: nothing of the target is known in the window.
        """
        return (_of_store if self.history.is_stored else _of_recording)(self, finding_needed)


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """What a window holds."""

    finding: Finding | None  # evidence, path, limits; None = no usable scrape
    window: Window  # what it is about: stored minutes are whole rows, the nearest to what was asked
    # of the target: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, with ``cache_config`` and
    # ``model_name``
    minutes: pl.DataFrame
    beside: pl.DataFrame  # those of its peers

    def moment(self, scope: TargetWindow) -> Moment:
        """What a question about the target's knobs is made of."""
        from driftwatch.pipeline.question import Moment

        gpus, end = scope.data.collected.gpus, self.window.end
        return Moment(scope.target, end, self.minutes, self.row, self.beside, scope.replicas, gpus)

    @property
    def row(self) -> dict[str, Any]:
        """Evidence with the reference's histograms, and "slower" as it was last known."""
        from driftwatch.pipeline.minutes import with_last_speed

        if self.finding is None:
            return {}
        return with_last_speed({**self.finding.evidence, **self.finding.histograms}, self.minutes)


def target_window(
    name: str | None,
    history: History,
    length: timedelta,
    *,
    traffic: timedelta,
    tree: str,
    today: date,
    until_last: bool = False,
) -> TargetWindow:
    """Which target and window are meant; see :class:`TargetWindow`.

    Args:
        name: of a target or a pool; None = the only one.
        until_last: the window ends at the last scrape at the latest.

    Raises:
        RecordingError: the recording cannot be read.
        StoreError: the store is missing or does not serve.
        UsageError: no target answers to the name, or more than one that are no pool; the moment
            lies after the last scrape by more than the window.
        NoVerdict: there is no scrape, or no target at all.
    """
    from driftwatch.pipeline.explain import window_ending

    at = history.at
    if history.is_stored:
        data = _stored(history, max(length, traffic))
    else:
        data = recorded(history)
        end = min(at or data.last, data.last)
        data = replace(data, collected=_labelled_at(history, end, data.collected))
    if at is not None and at >= data.last + length:
        raise UsageError(
            f"--at {at:%Y-%m-%dT%H:%MZ}: nothing was scraped then",
            help_text=f"scrapes reach to {data.last:%Y-%m-%dT%H:%MZ}",
        )
    end = min(at or data.last, data.last) if until_last else at or data.last
    chosen = chosen_target(name, data.collected.targets, data.collected.scrapes, end)
    return TargetWindow(history, data, chosen, window_ending(end, length), traffic, tree, today)


def chosen_target(
    name: str | None, targets: Mapping[TargetKey, Target], scrapes: pl.DataFrame, end: datetime
) -> Target:
    """The target that is named; of a pool of several the one with the longest queue at the end.

    Raises:
        UsageError: no target, or more than one that is no pool, answers to the name.
    """
    import polars as pl

    from driftwatch.model import TargetKey
    from driftwatch.pipeline.explain import target_named

    members = {key: one for key, one in targets.items() if name is not None and one.pool == name}
    if len(members) > 1:
        recent = scrapes.filter(
            pl.col("ok")
            & pl.col("waiting_requests").is_not_null()
            & pl.col("time").is_between(end - _RECENT, end)
        )
        queues = recent.group_by("instance", "engine").agg(pl.col("waiting_requests").mean())
        waiting = {TargetKey(one, engine): mean for one, engine, mean in queues.iter_rows()}
        if scraped := [key for key in sorted(members) if key in waiting]:
            return members[max(scraped, key=lambda key: waiting[key])]
    return target_named(name, targets, LISTED if sys.stderr.isatty() else None)


def _stored(history: History, length: timedelta) -> HistoryData:
    from driftwatch.cli.database import last_scraped
    from driftwatch.collect.schema import Collected
    from driftwatch.pipeline.stored_state import stored_origins, stored_targets

    with history.store() as store:
        last = last_scraped(store)
        end = history.at or last
        first = end - length - _LEARNT
        if history.baseline is not None:
            first = min(first, history.baseline.start)
        until = max(end, last) + timedelta(seconds=1)
        scrapes = store.scrapes(first, until)
        _warn_of_other_servers(scrapes)
        targets = history.plan.assign(stored_targets(store))
        return HistoryData(
            Collected(scrapes, targets, gpus=store.gpus(first, until)),
            first,
            last,
            tuple(store.open_incidents().values()),
            stored_origins(store),
        )


def recorded(history: History) -> HistoryData:
    """All of a recording.

    Raises RecordingError: it cannot be read.
    """
    from driftwatch.signals.one_process import of_one_process

    progress = Progress("reading")
    with history.sources(progress) as (source,):
        first, until = history.span([source])
        collected = source.collect(first, until)
    print_problems(collected.problems)
    scrapes = of_one_process(collected.scrapes)
    _warn_of_other_servers(scrapes)
    targets = history.plan.assign(collected.targets)
    collected = replace(collected, scrapes=scrapes, targets=targets)
    return HistoryData(collected, first, until - timedelta(microseconds=1))


def _warn_of_other_servers(scrapes: pl.DataFrame) -> None:
    """Which scrapes another server than the target's answered."""
    import polars as pl

    from driftwatch.signals.one_process import ANOTHER_SERVER

    others = scrapes.filter(pl.col("reason").str.starts_with(ANOTHER_SERVER))
    for instance, count, reason in (
        others.group_by("instance", maintain_order=True)
        .agg(pl.struct("engine", "time").n_unique(), pl.col("reason").last())
        .iter_rows()
    ):
        whole = scrapes.filter(pl.col("instance") == instance).height
        text = f"{count:,} of {whole:,} scrapes are not used: {reason}"
        click.echo(f"warning: {instance}: {text}", err=True)


def _labelled_at(history: History, at: datetime, collected: Collected) -> Collected:
    """With the targets' labels of a moment, where a recording has how they changed."""
    from driftwatch.collect.recordings.compact import CompactRecordingSource

    with history.sources(Progress("reading")) as (source,):
        if isinstance(source, CompactRecordingSource):
            return replace(collected, targets=history.plan.assign(source.targets_until(at)))
    return collected


def _of_recording(scope: TargetWindow, finding_needed: bool) -> Evaluated:
    """The pipeline runs over the recording up to the window's end, as ``replay`` does."""
    import polars as pl

    from driftwatch.baselines.in_force import in_force
    from driftwatch.baselines.windows import with_more
    from driftwatch.detect.baselines import Baselines
    from driftwatch.detect.reference import combined, no_reference
    from driftwatch.pipeline.question import among, peers_of
    from driftwatch.service.replay import of_baseline

    history, collected, target = scope.history, scope.data.collected, scope.target
    plan, targets = history.plan, collected.targets
    pins, measured = history.pins_of_file() or Baselines(), no_reference()
    if (window := history.baseline) is not None:
        labelled = _labelled_at(history, window.end, collected)
        measured, more = of_baseline(labelled, window, plan)
        pins = with_more(more, pins)
    detected, minutes = _evaluated_until(scope, pins, measured)
    if not finding_needed and detected.is_empty():
        raise NoVerdict(
            f"{target.key.text}: no minute before {scope.window.end:%Y-%m-%d %H:%M} UTC is known",
            help_text=f"scrapes reach to {scope.data.last:%Y-%m-%dT%H:%MZ}",
        )
    reference = in_force(pins, targets, plan, collected.gpus).reference
    finding: Finding | None = None
    try:
        finding = scope.explained(combined(measured, reference), detected)
    except NoVerdict:
        if finding_needed:
            raise
    own = (pl.col("instance") == target.key.instance) & (pl.col("engine") == target.key.engine)
    beside = among(minutes, peers_of(target, targets, plan))
    return Evaluated(finding, scope.window, minutes.filter(own), beside)


def _evaluated_until(
    scope: TargetWindow, pins: Baselines, reference: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The target's last row before the window's end, and the minutes of its pool up to there.

    Prints on stderr how far it is, and which proposed baselines it took.
    """
    import polars as pl

    from driftwatch.cli.proposal_notice import TakenProposals, with_proposals
    from driftwatch.pipeline.minutes import SPEED_SCHEMA
    from driftwatch.service.replay import detected_until
    from driftwatch.signals.minutes import minutes as minutes_of
    from driftwatch.signals.minutes import no_minutes

    key, end = scope.target.key, scope.window.end
    progress, proposals = Progress("replaying"), TakenProposals()
    own = (pl.col("instance") == key.instance) & (pl.col("engine") == key.engine)
    recent: list[pl.DataFrame] = []

    def note(rows: pl.DataFrame) -> None:
        proposals.note(rows.filter(own))
        late = rows.filter(pl.col("end") > end - scope.traffic)
        if len(late):
            beside = late.select("cache_config", "model_name", *SPEED_SCHEMA)
            recent.append(minutes_of(late).hstack(beside))

    try:
        detected = detected_until(
            scope.data.collected,
            scope.target,
            replace(with_proposals(scope.history.plan), simulations=0),
            end,
            baselines=pins,
            reference=reference,
            progress=progress,
            on_rows=note,
        )
    finally:
        progress.close()
    proposals.tell()
    return detected, pl.concat(recent) if recent else no_minutes()


def _of_store(scope: TargetWindow, finding_needed: bool) -> Evaluated:
    """From the window's scrapes, or from stored minutes where these know more of it."""
    from driftwatch.pipeline import past_windows
    from driftwatch.pipeline.question import peers_of

    target, window, history, plan = scope.target, scope.window, scope.history, scope.history.plan
    collected = scope.data.collected
    finding: Finding | None = None
    with history.store() as store:
        reference = past_windows.reference_from_store(store, collected, history.baseline, plan)
        since, end = window.end - scope.traffic, window.end
        minutes = store.past(since, end, [target.key])
        beside = store.past(since, end, peers_of(target, collected.targets, plan))
        try:
            if past_windows.is_past(store, collected.scrapes, target.key, window):
                finding, window = past_windows.explain_past(
                    store, target, window, plan, reference, today=scope.today, tree=scope.tree
                )
            else:
                detected = past_windows.detected_from_store(store, target.key, end)
                finding = scope.explained(reference, detected)
        except NoVerdict:  # what is known of the server now may be gone; its minutes may be not
            if finding_needed:
                raise
    return Evaluated(finding, window, minutes, beside)
