"""A target in a window, as ``explain`` and ``recommend`` read it from the store or a recording."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.cli import past
    from driftwatch.collect.schema import Collected
    from driftwatch.model import Finding, Incident, Target, TargetKey
    from driftwatch.pipeline.explain import Window

LISTED = 8  # targets that an error names on a terminal
_RECENT = timedelta(minutes=10)  # whose queue decides which server of a pool is meant
_LEARNT = timedelta(hours=1)  # what an inferred max_num_seqs came from may lie before the window


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What was read."""

    scrapes: pl.DataFrame  # scrape table, around the window and the baseline at least
    gpus: pl.DataFrame  # GPU readings of the same span
    targets: Mapping[TargetKey, Target]  # with their pools
    last: datetime  # the last scrape
    incidents: tuple[Incident, ...] = ()  # open ones; a recording has none
    # target → name of the source that lists it
    origins: Mapping[TargetKey, str] = field(default_factory=dict)

    @property
    def collected(self) -> Collected:
        """The same as from a source."""
        from driftwatch.collect.schema import Collected

        return Collected(self.scrapes, self.targets, gpus=self.gpus)


@dataclass(frozen=True, slots=True, eq=False)
class TargetWindow:
    """A target in a window, before it is evaluated."""

    where: past.Origin  # store or recording, plan, baseline
    history: History
    target: Target
    window: Window
    traffic: timedelta  # length of the minutes that an advice is made of, up to the window's end
    tree: str  # where the walk begins
    today: date  # the day whose times are printed without a date

    @property
    def source(self) -> str | None:
        """Name of the source that lists the target."""
        return self.history.origins.get(self.target.key)

    @property
    def replicas(self) -> int | None:
        """Engines of the target's pool; None where it is in no pool."""
        pool = self.target.pool
        return None if pool is None else sum(t.pool == pool for t in self.history.targets.values())

    def explained(self, reference: pl.DataFrame, detected: pl.DataFrame) -> Finding:
        """What the window's scrapes say.

        Raises NoVerdict: no usable scrape of the target lies in the window.
        """
        from driftwatch.pipeline.explain import explain

        return explain(
            self.history.collected,
            self.target,
            self.window,
            self.where.plan,
            reference,
            source=self.source,
            today=self.today,
            detected=detected,
            tree=self.tree,
        )

    def evaluated(self, *, finding_needed: bool = True) -> Evaluated:
        """Evidence and minutes, of the store or of a recording.

        ``finding_needed``: without a usable scrape in the window there is no verdict; else no
        finding: the minutes may still say something. Raises ConfigError: the pins are no export, or
        some of it is wrong; UsageError: the store knows nothing of the baseline; NoVerdict: nothing
        of the target is known in the window.
        """
        in_store = self.where.recording is None
        return (_of_store if in_store else _of_recording)(self, finding_needed)


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """What a window holds."""

    finding: Finding | None  # evidence, path, limits; None = no usable scrape
    window: Window  # what it is about: stored minutes are whole rows, the nearest to what was asked
    # of the target: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, with ``cache_config`` and
    # ``model_name``
    minutes: pl.DataFrame
    beside: pl.DataFrame  # those of its peers

    @property
    def row(self) -> dict[str, Any]:
        """Evidence with the reference's histograms, and "slower" as it was last known."""
        from driftwatch.pipeline.minutes import with_last_speed

        if self.finding is None:
            return {}
        return with_last_speed({**self.finding.evidence, **self.finding.histograms}, self.minutes)


def target_window(
    name: str | None,
    where: past.Origin,
    length: timedelta,
    *,
    traffic: timedelta,
    tree: str,
    today: date,
    until_last: bool = False,
) -> TargetWindow:
    """Which target and window are meant.

    ``name``: of a target or a pool; None = the only one; ``where``: store or recording, plan,
    baseline, the moment asked for; ``length``: of the window; ``traffic``: as :class:`TargetWindow`
    has it; ``tree``: where the walk begins; ``today``: the day whose times are printed without a
    date; ``until_last``: the window ends at the last scrape at the latest. Raises RecordingError:
    the recording cannot be read; StoreError: the store is missing or does not serve; UsageError: no
    target answers to the name, or more than one that are no pool; the moment lies after the last
    scrape by more than the window; NoVerdict: there is no scrape, or no target at all.
    """
    from driftwatch.pipeline.explain import window_ending

    at = where.at
    history = _stored(where, max(length, traffic)) if where.recording is None else _recorded(where)
    last = history.last
    if at is not None and at >= last + length:
        raise UsageError(
            f"--at {at:%Y-%m-%dT%H:%MZ}: nothing was scraped then",
            help_text=f"scrapes reach to {last:%Y-%m-%dT%H:%MZ}",
        )
    end = min(at or last, last) if until_last else at or last
    chosen = chosen_target(name, history.targets, history.scrapes, end)
    return TargetWindow(where, history, chosen, window_ending(end, length), traffic, tree, today)


def chosen_target(
    name: str | None, targets: Mapping[TargetKey, Target], scrapes: pl.DataFrame, end: datetime
) -> Target:
    """The target that is named; of a pool of several the one with the longest queue at the end.

    Raises UsageError: no target, or more than one that is no pool, answers to the name.
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


def _stored(where: past.Origin, length: timedelta) -> History:
    from driftwatch.cli.database import last_scraped, named_store
    from driftwatch.cli.recording_history import print_other_servers
    from driftwatch.pipeline.stored_state import stored_origins, stored_targets

    with named_store(where.db, where.config) as store:
        last = last_scraped(store)
        end = where.at or last
        first = end - length - _LEARNT
        if where.baseline is not None:
            first = min(first, where.baseline.start)
        until = max(end, last) + timedelta(seconds=1)
        scrapes = store.scrapes(first, until)
        print_other_servers(scrapes)
        return History(
            scrapes,
            store.gpus(first, until),
            where.plan.assign(stored_targets(store)),
            last,
            tuple(store.open_incidents().values()),
            stored_origins(store),
        )


def _recorded(where: past.Origin) -> History:
    """All of a recording, its targets as they were labelled at the moment or at its end."""
    from driftwatch.cli.recording_history import from_recording, labelled_at

    assert where.recording is not None  # noqa: S101 - asked before
    scrapes, gpus, targets, whole = from_recording(where.recording, where.plan)
    end = min(where.at or whole.end, whole.end)
    targets = labelled_at(where.recording, where.plan, end, targets)
    return History(scrapes, gpus, targets, whole.end)


def _of_recording(scope: TargetWindow, finding_needed: bool) -> Evaluated:
    """The pipeline runs over the recording up to the window's end, as ``replay`` does."""
    from driftwatch.cli.proposal_notice import pins_from
    from driftwatch.cli.recording_history import evaluate_recording, labelled_at
    from driftwatch.pipeline.explain import Window

    where, history, end = scope.where, scope.history, scope.window.end
    assert where.recording is not None  # noqa: S101 - asked before
    pinned_of = history.targets
    if where.baseline is not None:
        pinned_of = labelled_at(where.recording, where.plan, where.baseline.end, pinned_of)
    output = evaluate_recording(
        history.collected,
        scope.target,
        where.plan,
        Window(end - scope.traffic, end),
        pins=pins_from(where.pins),
        baseline=where.baseline,
        pinned_of=pinned_of,
    )
    if not finding_needed and output.detected.is_empty():
        raise NoVerdict(
            f"{scope.target.key.text}: no minute before {end:%Y-%m-%d %H:%M} UTC is known",
            help_text=f"scrapes reach to {history.last:%Y-%m-%dT%H:%MZ}",
        )
    finding: Finding | None = None
    try:
        finding = scope.explained(output.reference, output.detected)
    except NoVerdict:
        if finding_needed:
            raise
    return Evaluated(finding, scope.window, output.minutes, output.beside)


def _of_store(scope: TargetWindow, finding_needed: bool) -> Evaluated:
    """From the window's scrapes, or from stored minutes where these know more of it."""
    from driftwatch.cli.database import named_store
    from driftwatch.pipeline import past_windows
    from driftwatch.pipeline.question import peers_of

    history, target, window, where = scope.history, scope.target, scope.window, scope.where
    scrapes, targets, plan = history.scrapes, history.targets, where.plan
    finding: Finding | None = None
    with named_store(where.db, where.config) as store:
        reference = past_windows.reference_from_store(
            store, history.collected, where.baseline, plan
        )
        since, end = window.end - scope.traffic, window.end
        minutes = store.past(since, end, [target.key])
        beside = store.past(since, end, peers_of(target, targets, plan))
        try:
            if past_windows.is_past(store, scrapes, target.key, window):
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
