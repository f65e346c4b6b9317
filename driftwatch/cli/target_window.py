"""A target in a window of a store, as ``explain`` and ``recommend`` look at it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.replay_summary import TakenProposals
from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.cli.history import History
    from driftwatch.incidents.incident import Incident
    from driftwatch.model import Finding, Target, TargetKey
    from driftwatch.pipeline.explain import LastSeen, Window
    from driftwatch.pipeline.question import Moment
    from driftwatch.store import Store

LISTED = 8  # targets that an error names on a terminal
_RECENT = timedelta(minutes=10)  # whose queue decides which server of a pool is meant
_GPUS = timedelta(hours=25)  # readings around the window that name its GPUs


@dataclass(frozen=True, slots=True, eq=False)
class TargetWindow:
    """A target in a window of a store that is open."""

    history: History  # plan, baseline
    store: Store
    targets: Mapping[TargetKey, Target]  # with pools
    target: Target
    window: Window
    today: date  # the day whose times are printed without a date
    incidents: tuple[Incident, ...] = ()  # that are open now
    source: str | None = None  # name of the source that lists the target

    @property
    def silence(self) -> LastSeen | None:
        """Since when the target is silent at the window's end; None where it is not."""
        from driftwatch.pipeline.explain import last_seen

        return last_seen(self.store, self.target.key, self.window.end, self.source)

    def evaluated(self, traffic: timedelta, tree: str, *, finding_needed: bool = True) -> Evaluated:
        """Evidence and minutes.

        Args:
            traffic: length of the minutes that an advice is made of, up to the window's end.
            tree: where the walk begins.
            finding_needed: without a usable scrape in the window there is no verdict; else no
                finding: the minutes may still say something.

        Raises:
            UsageError: the store knows nothing of the baseline.
            NoVerdict: nothing of the target is known in the window.
        """
        from driftwatch.cli.database import last_scraped
        from driftwatch.pipeline.explain import explain, reference_of
        from driftwatch.pipeline.question import Moment, peers_of

        store, target, window, plan = self.store, self.target, self.window, self.history.plan
        gpus = store.gpus(window.end - _GPUS, window.end + _GPUS)
        baseline = self.history.baseline if self.history.is_stored else None
        reference = reference_of(store, self.targets, plan, baseline, gpus)
        finding: Finding | None = None
        try:
            finding, window = explain(
                *(store, target, window, plan, reference),
                source=self.source,
                today=self.today,
                tree=tree,
            )
        except NoVerdict:  # what is known of the server now may be gone; its minutes may be not
            if finding_needed:
                raise
        since, end = window.end - traffic, window.end
        minutes = store.past(since, end, [target.key])
        if minutes.is_empty():
            raise NoVerdict(
                f"{target.key.text}: no minute before {end:%Y-%m-%d %H:%M} UTC is known",
                help_text=f"scrapes reach to {last_scraped(store):%Y-%m-%dT%H:%MZ}",
            )
        beside = store.past(since, end, peers_of(target, self.targets, plan))
        row = _row(finding, minutes)
        replicas = sum(one.pool == target.pool for one in self.targets.values())
        of_pool = replicas if target.pool is not None else None
        moment = Moment(target, end, minutes, row, beside, of_pool, gpus)
        return Evaluated(finding, window, moment, row)


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """What a window holds."""

    finding: Finding | None  # evidence, path, limits; None = no usable scrape
    window: Window  # what it is about: whole minutes, the nearest to what was asked
    moment: Moment  # what a question about the target's knobs is made of
    row: dict[str, Any]  # evidence with the reference's histograms


def _row(finding: Finding | None, minutes: pl.DataFrame) -> dict[str, Any]:
    """Evidence with the reference's histograms, and "slower" as it was last known."""
    from driftwatch.pipeline.minutes import with_last_speed

    if finding is None:
        return {}
    return with_last_speed({**finding.evidence, **finding.histograms}, minutes)


@contextmanager
def target_window(
    name: str | None, history: History, length: timedelta, *, today: date, until_last: bool = False
) -> Iterator[TargetWindow]:
    """Which target and window are meant; the store is open meanwhile.

    Args:
        name: of a target or a pool; None = the only one.
        until_last: the window ends at the last scrape at the latest.

    Raises:
        RecordingError: the recording cannot be read.
        StoreError: the store is missing or does not serve.
        UsageError: no target answers to the name, or more than one that are no pool, or it is a
            file; the moment lies after the last scrape by more than the window.
        NoVerdict: there is no scrape, or no target at all.
    """
    from driftwatch.cli.database import last_scraped
    from driftwatch.pipeline.explain import window_ending
    from driftwatch.pipeline.stored_state import stored_origins

    if name is not None and Path(name).exists():
        option = "--db" if Path(name).suffix in (".db", ".sqlite") else "--recording"
        command = click.get_current_context().command_path
        meant = f"{command} {option} {shlex.quote(name)}"
        raise UsageError(f"{name} is a file, no server", help_text=meant)
    if history.is_stored and (history.since or history.until):
        raise UsageError("--from and --to need --prometheus")
    with history.store() as store:
        last, at = last_scraped(store), history.at
        if at is not None and at >= last + length:
            raise UsageError(
                f"--at {at:%Y-%m-%dT%H:%MZ}: nothing was scraped then",
                help_text=f"scrapes reach to {last:%Y-%m-%dT%H:%MZ}",
            )
        end = min(at or last, last) if until_last else at or last
        targets = targets_at(store, history, end, name)
        target = chosen_target(name, targets, store, end)
        if not history.is_stored:
            TakenProposals().note_stored(store, end, [target.key]).tell()
        yield TargetWindow(
            history,
            store,
            targets,
            target,
            window_ending(end, length),
            today,
            tuple(store.open_incidents().values()) if history.is_stored else (),
            stored_origins(store).get(target.key),
        )


def targets_at(
    store: Store, history: History, at: datetime, name: str | None
) -> Mapping[TargetKey, Target]:
    """The targets that are known now, and those that had minutes then, with their pools; of one
    that is named any minute will do.
    """
    import polars as pl

    from driftwatch.model import Target, TargetKey
    from driftwatch.pipeline.stored_state import stored_targets

    now = history.plan.assign(stored_targets(store))
    read = ("instance", "engine", "end", "pool", "model_name")
    rows = store.past(at - _RECENT, at, columns=read)
    if name is not None:
        instance, _, engine = name.partition("/")
        key = TargetKey(instance, engine or "0")
        if key not in now and (span := store.minutes_span(key)) is not None:
            rows = pl.concat([rows, store.past(span[1] - _RECENT, span[1], [key], read)])
    then = {}
    rows = rows.unique(["instance", "engine"], keep="last", maintain_order=True)
    for row in rows.iter_rows(named=True):
        key = TargetKey(row["instance"], row["engine"])
        labels = {"model_name": row["model_name"]} if row["model_name"] else {}
        then[key] = Target(key, labels, row["pool"])
    return {**then, **now}


def chosen_target(
    name: str | None, targets: Mapping[TargetKey, Target], store: Store, end: datetime
) -> Target:
    """The target that is named; of a pool of several the one with the longest queue at the end,
    among those that an open page, else a ticket, concerned then.

    Raises:
        UsageError: no target, or more than one that is no pool, answers to the name.
    """
    import polars as pl

    from driftwatch.model import TargetKey
    from driftwatch.pipeline.explain import target_named

    members = {key: one for key, one in targets.items() if name is not None and one.pool == name}
    if len(members) > 1:
        recent = store.past(end - _RECENT, end, members, ["waiting_requests"])
        if troubled := _concerned_at(store, name or "", end) & members.keys():
            known = pl.DataFrame(sorted(troubled), schema=["instance", "engine"], orient="row")
            recent = recent.join(known, on=["instance", "engine"], how="semi")
        else:
            recent = recent.drop_nulls("waiting_requests")
        queues = recent.group_by("instance", "engine").agg(pl.col("waiting_requests").mean())
        order = ["waiting_requests", "instance", "engine"]
        longest = queues.sort(order, descending=[True, False, False], nulls_last=True)
        if len(longest):
            return members[TargetKey(*longest.row(0)[:2])]
    return target_named(name, targets, LISTED if sys.stderr.isatty() else None)


def _concerned_at(store: Store, pool: str, at: datetime) -> set[TargetKey]:
    """The servers of a pool that a page concerned at a moment; without a page, a ticket."""
    for severity in ("page", "ticket"):
        concerned = {
            server.key
            for one in store.incidents(since=at, pages=False)
            if one.pool == pool and one.severity == severity
            if one.firing_at is not None and one.firing_at <= at
            for server in one.servers
            if server.met and server.since <= at <= server.last_true_at + _RECENT
        }
        if concerned:
            return concerned
    return set()
