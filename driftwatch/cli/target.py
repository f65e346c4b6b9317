"""Which server a person means, and its window of a store."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from driftwatch.cli.database import last_scraped
from driftwatch.cli.printer import print_note
from driftwatch.cli.replay_summary import TakenProposals
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.incidents.incident import shown_first

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.cli.history import History
    from driftwatch.incidents.incident import Incident
    from driftwatch.model import Finding, Target, TargetKey
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.plan import Plan
    from driftwatch.pipeline.question import Moment
    from driftwatch.store.store import Store

_KEY = ("instance", "engine")
_LISTED = 8  # names in an error on a terminal; piped all
_SERVER_LINES = 16
_RECENT = timedelta(minutes=10)  # whose queue decides which server of a pool is meant


@dataclass(frozen=True, slots=True, eq=False)
class TargetWindow:
    """A server in a window of a store that is open."""

    history: History  # plan, baseline
    plan: Plan
    store: Store
    targets: Mapping[TargetKey, Target]  # with pools
    target: Target
    window: Window
    today: date  # the day whose times are printed without a date
    source: str | None = None  # name of the source that lists the target
    incident: Incident | None = None  # the one that is named
    members: Mapping[TargetKey, Target] = field(default_factory=dict)  # of the name

    @property
    def silence(self) -> str | None:
        """Since when the target is silent at the window's end; None where it is not."""
        from driftwatch.pipeline.explain import why_not_scraped

        at = self.window.end
        return why_not_scraped(self.store, self.target.key, at, self.source, self.today)

    @property
    def is_of_pool(self) -> bool:
        """Whether a pool of several servers is meant, not one of them."""
        return len(self.members) > 1

    def incidents(self) -> list[Incident]:
        """Incidents that fire at the window's end and concern the server, as a command shows them:
        the one that it was asked for first.
        """
        firing = firing_at(self.store, self.history.at)
        here = [(one, keys) for one, keys in firing if self.target.key in keys]
        found = [one for one, _ in shown_first(here, of_pool=self.is_of_pool)]
        named = self.incident
        return found if named is None else [named, *(o for o in found if o.id != named.id)]

    def server_lines(self) -> list[str]:
        """A line for each server of the pool that is meant: ``Server   a:1: in target, 0 waiting``;
        of more than 16 servers those alone that are not in target.
        """
        if not self.is_of_pool:
            return []
        from driftwatch.notify.explanation import server_text
        from driftwatch.pipeline.explain import findings_in

        found = findings_in(self.store, self.members, self.window, self.plan, self._reference())
        texts = {key.text: server_text(found.get(key)) for key in sorted(self.members)}
        if len(texts) > _SERVER_LINES:
            texts = {name: text for name, text in texts.items() if not text.startswith("in target")}
        lines = [f"{'Server':<8} {name}: {text}" for name, text in texts.items()][:_SERVER_LINES]
        if len(lines) < len(self.members):
            lines.append(f"{'Server':<8} {len(self.members) - len(lines)} more")
        return lines

    def _reference(self) -> pl.DataFrame:
        from driftwatch.pipeline.explain import reference_of

        baseline = self.history.baseline if self.history.is_stored else None
        return reference_of(self.store, self.targets, self.plan, self.window.end, baseline)

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
        from driftwatch.pipeline.explain import explain
        from driftwatch.pipeline.minutes import with_last_speed
        from driftwatch.pipeline.question import Moment, peers_of

        store, target, window, plan = self.store, self.target, self.window, self.plan
        reference, finding = self._reference(), None
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
        beside = store.past(since, end, peers_of(target, self.targets))
        row: dict[str, Any] = {}
        if finding is not None:  # with "slower" as it was last known
            row = with_last_speed({**finding.evidence, **finding.histograms}, minutes)
        replicas = sum(one.pool == target.pool for one in self.targets.values())
        of_pool = replicas if target.pool is not None else None
        moment = Moment(target, end, minutes, row, beside, of_pool)
        return Evaluated(finding, window, moment)


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """What a window holds."""

    finding: Finding | None  # evidence, path, limits; None = no usable scrape
    window: Window  # what it is about: whole minutes, the nearest to what was asked
    moment: Moment  # what a question about the target's knobs is made of, with its evidence


@contextmanager
def target_window(
    name: str | None,
    history: History,
    length: timedelta,
    *,
    today: date,
    until_last: bool = False,
    incident: Incident | None = None,
) -> Iterator[TargetWindow]:
    """Which target and window are meant; the store is open meanwhile.

    Args:
        name: of a server or a pool; None = the only server.
        until_last: the window ends at the last scrape at the latest.
        incident: the one that is meant, of several servers all of its pool.

    Raises:
        RecordingError: the recording cannot be read.
        StoreError: the store is missing or does not serve.
        UsageError: no server and no pool has the name; the moment lies after the last scrape by
            more than the window.
        NoVerdict: there is no scrape, or no target at all.
    """
    from driftwatch.cli.options import on_its_day, refuse_file
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.stored_state import stored_origins

    if name is not None:
        refuse_file(name, "server")
    with history.store() as store:
        last = last_scraped(store)
        history = replace(history, at=on_its_day(history.at, last))
        at = history.at
        first, _ = store.minutes_reach() or (last, last)
        if at is not None and not first < at < last + length:
            raise NoVerdict(
                f"--at {at:%Y-%m-%dT%H:%MZ}: nothing was scraped then",
                help_text=f"scrapes reach from {first:%Y-%m-%dT%H:%MZ} to {last:%Y-%m-%dT%H:%MZ}",
            )
        end = min(at or last, last) if until_last else at or last
        plan = history.plan_of(store, end)
        targets = targets_at(store, plan, end, name)
        target = chosen_target(name, targets, store, end)
        about, is_of_many = name, False
        if incident is not None:
            is_of_many = len(_concerned_at(incident, end, ())) > 1
            about = incident.pool if is_of_many else name
        members = {} if about is None else members_of(about, targets)
        if not history.is_stored:
            TakenProposals().note_stored(store, end, [target.key]).tell()
        yield TargetWindow(
            history,
            plan,
            store,
            targets,
            target,
            Window(end - length, end),
            today,
            stored_origins(store).get(target.key),
            incident,
            members,
        )


def targets_at(
    store: Store, plan: Plan, at: datetime, name: str | None = None
) -> Mapping[TargetKey, Target]:
    """The targets that are known now, and those that had minutes then, with their pools; of one
    that is named any minute will do.
    """
    import polars as pl

    from driftwatch.model import Target, TargetKey
    from driftwatch.pipeline.stored_state import stored_targets

    now = plan.assign(stored_targets(store))
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


def members_of(name: str | None, targets: Mapping[TargetKey, Target]) -> dict[TargetKey, Target]:
    """The server that is named, else the servers of the pool, the instance or the model; every one
    without a name.

    Raises:
        UsageError: there is none of that name.
        NoVerdict: there is no target at all.
    """
    if not targets:
        raise NoVerdict("there is no server here", help_text="is the recording or store empty?")
    if name is None:
        return dict(targets)
    for names in (
        lambda one: (one.key.text, f"{one.key.instance}/{one.key.engine}"),
        lambda one: (one.pool, one.key.instance),
        lambda one: (one.labels.get("model_name"), one.key.instance.rpartition(":")[0]),
    ):
        if found := {key: one for key, one in targets.items() if name in names(one)}:
            return found
    from driftwatch.yaml_models import near

    servers = [targets[key].key.text for key in sorted(targets)]
    pools = sorted({one.pool for one in targets.values() if one.pool})
    meant = near(name, [*pools, *servers])
    raise UsageError(
        f"no server and no pool is called {name!r}",
        help_text=f"{meant or 'there are'} pools: {_few(pools)}; servers: {_few(servers)}",
    )


def _few(names: Collection[str]) -> str:
    """All of them; on a terminal the first, the others counted."""
    limit = _LISTED if sys.stderr.isatty() else len(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(list(names)[:limit]) + more


def chosen_target(
    name: str | None, targets: Mapping[TargetKey, Target], store: Store, end: datetime
) -> Target:
    """The server that is named; of a pool of several the one with the longest queue at the end,
    among those of the page, else the ticket, that a command for the pool shows first.

    Raises:
        UsageError: there is none of that name; or no name, and several servers.
        NoVerdict: there is no server at all.
    """
    import polars as pl

    from driftwatch.model import TargetKey

    members = members_of(name, targets)
    if len(members) == 1:
        return next(iter(members.values()))
    if name is None:
        pools = sorted({one.pool for one in members.values() if one.pool})
        servers = _few([members[key].key.text for key in sorted(members)])
        raise UsageError(
            "name a server or a pool", help_text=f"pools: {_few(pools)}; servers: {servers}"
        )
    recent = store.past(end - _RECENT, end, members, ["waiting_requests"])
    here = [(o, {*keys} & {*members}) for o, keys in firing_at(store, end)]
    firing = shown_first(((o, keys) for o, keys in here if keys), of_pool=True)
    first = firing[0] if firing and firing[0][0].severity != "notice" else None
    if troubled := [] if first is None else first[1]:
        known = pl.DataFrame(sorted(troubled), schema=["instance", "engine"], orient="row")
        recent = recent.join(known, on=["instance", "engine"], how="semi")
    queues = recent.group_by("instance", "engine").agg(pl.col("waiting_requests").mean())
    order = ["waiting_requests", "instance", "engine"]
    longest = queues.sort(order, descending=[True, False, False], nulls_last=True)
    if longest.is_empty():
        return members[min(members)]
    key = TargetKey(*longest.row(0)[:2])
    of = f"its {len(members)}" if first is None else f"the {first[0].severity}'s"
    print_note(f"{name}: {key.text} is shown, with the longest queue of {of} servers")
    return members[key]


def firing_at(store: Store, at: datetime | None) -> list[tuple[Incident, tuple[TargetKey, ...]]]:
    """Incidents that fire at a moment, each with the servers that it concerns; None = now."""
    if at is None:
        return [(one, one.concerned) for one in store.open_incidents().values() if one.is_firing]
    firing = [
        one
        for one in store.incidents(since=at)
        if one.firing_at is not None
        and one.firing_at <= at
        and (one.resolved_at is None or one.resolved_at > at)
    ]
    return [(one, _concerned_at(one, at, firing)) for one in firing]


def _concerned_at(
    incident: Incident, at: datetime, firing: Collection[Incident]
) -> tuple[TargetKey, ...]:
    """The servers that an incident concerned at a moment of its life: those that its last message
    counted, and those that joined after it; not those of which the page of another spoke.
    """
    others = (o for o in firing if o.id != incident.id and o.severity == "page")
    spoken = {name for one in others for name in _counted(one, at)}
    counted = _counted(incident, at)
    return tuple(
        one.key
        for one in incident.servers
        if one.met
        and (
            one.key.text in counted
            or (one.since <= at <= one.last_true_at + _RECENT and one.key.text not in spoken)
            or not incident.messages
        )
    )


def _counted(incident: Incident, at: datetime) -> tuple[str, ...]:
    """The servers that its last message at a moment counted."""
    return next((one.servers for one in reversed(incident.messages) if one.at <= at), ())


def with_stored_pools(plan: Plan, store: Store, at: datetime) -> Plan:
    """The plan with the pools of the database, as the service that watches them had them; what the
    command line names wins.
    """
    from driftwatch.collect.startup import merge
    from driftwatch.model import TargetKey
    from driftwatch.pipeline.latest import declared_pools
    from driftwatch.pipeline.plan import Pool

    declared = {
        name: replace(pool, serving=merge(plan.default_serving, pool.serving))
        for name, pool in declared_pools(store).items()
    }
    rows = store.past(at - _RECENT, at, columns=("instance", "engine", "end", "pool"))
    newest = rows.unique(["instance", "engine"], keep="last").drop_nulls("pool")
    of = {TargetKey(*key): pool for *key, pool in newest.select(*_KEY, "pool").iter_rows()}
    other = Pool("", serving=plan.default_serving, reported=plan.default_reported)
    pools = {key: declared.get(name) or replace(other, name=name) for key, name in of.items()}
    return replace(plan, stored_pools=pools)
