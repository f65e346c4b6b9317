"""One reading of the sources for several shards: what of it is each one's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import polars as pl

from driftwatch.collect.schema import KEY, Collected, Source
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.departures import LOOKS_SCHEMA, no_looks
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.roster import Sources
from driftwatch.pipeline.state import State
from driftwatch.service.rendezvous import Share
from driftwatch.service.source_threads import Collecting, Gathered
from driftwatch.service.watch import Brought


def earliest(each: Collection[Mapping[str, datetime]]) -> dict[str, datetime]:
    """Per source from where on it is to be asked, so that every shard has all it lacks."""
    names = set[str]().union(*each)
    return {
        name: min(until[name] for until in each)
        for name in sorted(names)
        if all(name in until for until in each)
    }


def brought_to_all(gathered: Gathered, sources: Sequence[Source]) -> Brought:
    """What was gathered, for one that watches every pool."""
    return Brought(
        gathered.collected,
        gathered.collected_until,
        gathered.complete,
        Sources.of(sources, gathered.names, gathered.late),
    )


def brought_to(
    share: Share,
    state: State,
    gathered: Gathered,
    sources: Sequence[Source],
    collecting: Collecting,
    pools: Mapping[TargetKey, Target],
    plan: Plan,
    now: datetime,
) -> Brought:
    """What of it is new to one shard, and about its own pools.

    ``pools``: every target that is listed, with its pool, by the plan. An answer that begins after
    what the shard has, or that was not asked for its pools, is left out: it is asked again.
    """
    has, until = state.collected_until, dict(state.collected_until)
    names, collected = [], []
    elsewhere: dict[TargetKey, str] = {}
    for name, brought in zip(gathered.names, gathered.collected, strict=True):
        since = has.get(name)
        if since is not None and gathered.since[name] > since:
            continue
        own_pools = gathered.own_pools.get(name)
        if own_pools is not None and not own_pools.has(share, plan):
            continue
        own, theirs = _parted(brought, share, state, pools, since)
        names.append(name)
        collected.append(own)
        elsewhere |= theirs
        if (reached := gathered.collected_until.get(name)) is not None:
            until[name] = reached if since is None else max(reached, since)
    complete, late = collecting.progress(until, now)
    listing = replace(Sources.of(sources, names, late), elsewhere=elsewhere, looks=_looks(gathered))
    return Brought(collected, until, complete, listing)


def _looks(gathered: Gathered) -> pl.DataFrame:
    """The minutes in which targets of a source were scraped, whosever."""
    each = (
        pl.DataFrame({"source": name, "start": brought.looks}, schema=LOOKS_SCHEMA)
        if brought.looks is not None
        else brought.scrapes.select(source=pl.lit(name), start=pl.col("time").dt.truncate("1m"))
        for name, brought in zip(gathered.names, gathered.collected, strict=True)
    )
    return pl.concat([no_looks(), *each]).unique(maintain_order=True)


def _parted(
    brought: Collected,
    share: Share,
    state: State,
    pools: Mapping[TargetKey, Target],
    since: datetime | None,
) -> tuple[Collected, dict[TargetKey, str]]:
    """The part of one shard; and of its targets those that are another's by now → why."""
    own, theirs = {}, {}
    for key, target in brought.targets.items():
        pool = pools[key].pool or ""
        if share.has_pool(pool):
            own[key] = target
        elif key in state.targets:
            theirs[key] = f"the server is in pool {pool} now"
    every = own.keys() | (state.targets.keys() - theirs.keys()) | state.departures.retired
    keys = pl.DataFrame(sorted(every), dict.fromkeys(KEY, pl.String), orient="row")
    scrapes = brought.scrapes
    if since is not None:
        scrapes = scrapes.filter(pl.col("time") >= since)
    scrapes = scrapes.join(keys, on=KEY, how="semi", maintain_order="left")
    gpus = brought.gpus
    if since is not None:
        gpus = gpus.filter(pl.col("time") >= since)
    return replace(brought, targets=own, scrapes=scrapes, gpus=gpus), theirs
