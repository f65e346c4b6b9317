"""Batches: a fixed set of pools each, ticked by whichever process has its turn.

What a process knows of a batch is a cache of what is stored: it is dropped whenever another process
has committed a tick meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import structlog

from driftwatch.collect.schema import KEY, Collected, Source
from driftwatch.errors import StoreError
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.roster import Sources
from driftwatch.pipeline.state import SCRAPED_SCHEMA, State, nothing_scraped
from driftwatch.service.source_threads import Collecting, Gathered
from driftwatch.service.watch import TickContext, TickInput, TickResult, Watch
from driftwatch.store.progress import BatchProgress, batch_of
from driftwatch.store.store import Store

# A batch whose last tick is older than this is unwatched: two minutes, and what a tick takes.
UNWATCHED = timedelta(seconds=150)


def _by_source(state: State) -> dict[str, dict[TargetKey, Target]]:
    """Targets by the source that listed them last."""
    found: dict[str, dict[TargetKey, Target]] = {}
    for key, name in state.origins.items():
        if key in state.targets:
            found.setdefault(name, {})[key] = state.targets[key]
    return found


@dataclass(frozen=True, slots=True)
class OwnPools:
    """The pools of one batch, as a plan has pools."""

    number: int
    of: int
    plan: Plan

    def has_pool(self, pool: str) -> bool:
        """Whether a pool is among them."""
        return batch_of(pool, self.of) == self.number

    def targets(self, listed: Mapping[TargetKey, Target]) -> set[TargetKey]:
        """Those of the listed targets that are in them (:data:`driftwatch.collect.schema.Own`)."""
        return {key for key, one in listed.items() if self.has_pool(self.plan.pool_of(one).name)}


class Batches:
    """What one process has of the batches that it ticked.

    Args:
        store: whole.
    """

    def __init__(self, store: Store, sources: Sequence[Source]) -> None:
        self._store, self._sources = store, sources
        self._watches: dict[int, Watch] = {}
        # the pools of listed targets, looked up once while their labels and the plan stay
        self._pools: tuple[Plan, Mapping[TargetKey, Target]] | None = None
        self._log: Any = structlog.get_logger()

    def watch(self, number: int, of: int, plan: Plan, now: datetime) -> Watch:
        """A batch as it is stored, from the cache where nobody else has ticked it since."""
        store = self._store.of_batch(number, of)
        progress = store.batch_progress() or BatchProgress(number, of)
        cached = self._watches.get(number)
        if cached is None or not progress.is_same_commit(cached.progress):
            cached = self._watches[number] = Watch(store, plan, now, progress)
        return cached

    def gather(
        self, one: Watch, plan: Plan, now: datetime, wait_seconds: float, collecting: Collecting
    ) -> Gathered:
        """Ask the sources what a batch has not been told yet."""
        of = one.progress.of
        own = None if of == 1 else OwnPools(one.progress.number, of, plan)
        return collecting.gather(
            one.state.collected_until, now, wait_seconds, own, _by_source(one.state)
        )

    def tick(
        self,
        one: Watch,
        gathered: Gathered,
        now: datetime,
        context: TickContext,
        incomplete: str | None,
    ) -> TickResult | None:
        """Evaluate what was gathered, and commit it; None: another tick was committed meanwhile."""
        number, of = one.progress.number, one.progress.of
        given = TickInput(
            gathered.collected,
            gathered.collected_until,
            gathered.complete,
            Sources.of(self._sources, gathered.names, gathered.late),
        )
        if of > 1:
            own = OwnPools(number, of, context.plan)
            given = of_batch(own, given, one.state, self._pools_of(gathered, context.plan))
        try:
            return one.tick(given, now, context, incomplete)
        except StoreError as error:
            if error.code != "tick-lost":
                raise
            self._watches.pop(number, None)
            self._log.warning("tick lost", batch=number, reason=error.message)
            return None

    def _pools_of(self, gathered: Gathered, plan: Plan) -> Mapping[TargetKey, Target]:
        listed = {key: t for c in gathered.collected for key, t in c.targets.items()}
        before = self._pools
        same = before is not None and plan.has_pools_of(before[0])
        pools = plan.assign(listed, before[1] if before is not None and same else None)
        self._pools = (plan, pools)
        return pools


def of_batch(
    own: OwnPools, given: TickInput, state: State, pools: Mapping[TargetKey, Target]
) -> TickInput:
    """What of the sources' answers is about the pools of one batch.

    ``pools``: every target that is listed, with its pool, by the plan.
    """
    collected: list[Collected] = []
    moved: dict[TargetKey, str] = {}
    for brought in given.collected:
        mine, theirs = _parted(brought, own, state, pools)
        collected.append(mine)
        moved |= theirs
    listing = replace(given.sources, moved=moved, scraped=_scraped(given))
    return replace(given, collected=collected, sources=listing)


def _scraped(given: TickInput) -> pl.DataFrame:
    """The minutes in which targets of a source were scraped, whosever."""
    each = (
        pl.DataFrame({"source": name, "start": brought.looks}, schema=SCRAPED_SCHEMA)
        if brought.looks is not None
        else brought.scrapes.select(source=pl.lit(name), start=pl.col("time").dt.truncate("1m"))
        for name, brought in zip(given.sources.names, given.collected, strict=True)
    )
    return pl.concat([nothing_scraped(), *each]).unique(maintain_order=True)


def _parted(
    brought: Collected, own: OwnPools, state: State, pools: Mapping[TargetKey, Target]
) -> tuple[Collected, dict[TargetKey, str]]:
    """The part of one batch; and of its targets those that are another's by now → why."""
    listed, theirs = {}, {}
    for key, target in brought.targets.items():
        pool = pools[key].pool or ""
        if own.has_pool(pool):
            listed[key] = target
        elif key in state.targets:
            theirs[key] = f"the server is in pool {pool} now"
    every = listed.keys() | (state.targets.keys() - theirs.keys()) | state.retired
    keys = pl.DataFrame(sorted(every), dict.fromkeys(KEY, pl.String), orient="row")
    scrapes = brought.scrapes.join(keys, on=KEY, how="semi", maintain_order="left")
    return replace(brought, targets=listed, scrapes=scrapes), theirs


def unwatched(progress: Collection[BatchProgress], now: datetime) -> list[int]:
    """Batches without a tick for :data:`UNWATCHED`."""
    return [
        one.number for one in progress if one.ticked_at is None or now - one.ticked_at > UNWATCHED
    ]


def merge_states(states: Sequence[State]) -> State:
    """The states of some batches merged into one, as far as metrics and the log read it."""
    if len(states) == 1:
        return states[0]
    reached = [state.evaluated_until for state in states if state.evaluated_until is not None]
    return State(
        evaluated_until=min(reached, default=None),
        targets={key: t for state in states for key, t in state.targets.items()},
        incidents={key: i for state in states for key, i in state.incidents.items()},
    )
