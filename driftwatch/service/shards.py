"""The shards that a process watches: each with its own memory, from one reading of the sources.

A process that watches all pools has one watching, of all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import structlog

from driftwatch.collect.schema import Source, empty_scrapes
from driftwatch.diagnose.evidence_table import no_rows
from driftwatch.errors import StoreError
from driftwatch.model import TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import Outcome, State
from driftwatch.service.membership import Membership
from driftwatch.service.receivers import Receiver
from driftwatch.service.rendezvous import OwnPools, Pools, Share
from driftwatch.service.shard_parts import brought_to, brought_to_all
from driftwatch.service.source_threads import Collecting, Gathered
from driftwatch.service.watch import Deciding, Ticked, Watch, progress_by_shard
from driftwatch.store.lease import Lease
from driftwatch.store.store import Store

# A shard whose last tick is older than this is watched by nobody.
UNWATCHED = timedelta(seconds=90)


class Shards:
    """The watches of one process.

    Args:
        store: whole.
        membership: says which shards it has; None = it watches all pools.

    Attributes:
        planning: held from reading what was sent to the commit of what is planned.
    """

    def __init__(
        self, store: Store, membership: Membership | None, sources: Sequence[Source], plan: Plan
    ) -> None:
        self.planning = threading.Lock()
        self._store, self._membership, self._sources = store, membership, sources
        self._watches: dict[Lease | None, Watch] = {}
        self._pools = Pools(plan)
        self._seconds: dict[int | None, float] = {}
        self._log: Any = structlog.get_logger()

    def current(self, plan: Plan, now: datetime) -> list[Watch]:
        """Those of the shards that are held now; a shard that is new begins where it was left.

        One that cannot is logged, and tried again with the next tick.
        """
        if self._membership is None:
            if not self._watches:
                self._watches = {None: Watch(self._store, plan, now, self.planning)}
            return list(self._watches.values())
        leases = self._membership.leases()
        with self.planning:
            self._watches = {
                lease: one for lease, one in self._watches.items() if lease in leases.values()
            }
        self._membership.give_back()
        for shard, lease in leases.items():
            if lease not in self._watches:
                share = Share(shard, self._membership.count)
                store = self._store.of_shard(shard, lease)
                try:
                    begun = Watch(store, plan, now, self.planning, share)
                except Exception as error:  # noqa: BLE001 - the other shards go on
                    self._log.error("shard not watched", shard=shard, reason=str(error))
                    continue
                with self.planning:
                    self._watches[lease] = begun
        return list(self._watches.values())

    def own_pools(self, watches: Sequence[Watch], plan: Plan) -> OwnPools | None:
        """The pools of these; None: all."""
        if self._membership is None:
            return None
        shards = frozenset(one.share.shard for one in watches if one.share is not None)
        return OwnPools(shards, self._membership.count, plan)

    def tick(
        self,
        watches: Sequence[Watch],
        gathered: Gathered,
        now: datetime,
        deciding: Deciding,
        collecting: Collecting,
    ) -> list[Ticked]:
        """A tick of each; one that fails costs no other its own.

        Raises:
            Exception: the first one of a shard, when all have had their turn; but for a shard that
                another process has taken over.
        """
        plan = deciding.plan
        if self._membership is None:
            (one,) = watches
            return [one.tick(brought_to_all(gathered, self._sources), now, deciding)]
        listed = {key: t for c in gathered.collected for key, t in c.targets.items()}
        pools, ticked, errors = self._pools.of(listed, plan), [], []
        for one in watches:
            assert one.share is not None  # noqa: S101 - of one shard each
            reading = (gathered, self._sources, collecting, pools, plan, now)
            began = time.monotonic()
            try:
                brought = brought_to(one.share, one.state, *reading)
                took = self._seconds.get(one.share.shard, 0.0)
                ticked.append(one.tick(brought, now, deciding, took))
            except Exception as error:  # noqa: BLE001 - the other shards go on
                if isinstance(error, StoreError) and error.code == "lease-lost":
                    self._log.warning("shard lost in a tick", shard=one.share.shard)
                    continue
                errors.append(error)
            self._seconds[one.share.shard] = time.monotonic() - began
        if errors:
            raise errors[0]
        return ticked

    def plan_actions(self, plan: Plan, receivers: Sequence[Receiver], now: datetime) -> bool:
        """Tell receivers what people did since the last tick; whether there was anything."""
        with self.planning:
            watches = list(self._watches.values())
        planned = [one.plan_actions(plan, receivers, now) for one in watches]
        return any(planned)

    @property
    def states(self) -> list[State]:
        """What each of them goes on from."""
        return [one.state for one in self._watches.values()]

    def unwatched(self, now: datetime) -> list[int]:
        """Shards that nobody watches."""
        if self._membership is None:
            return []
        return unwatched(progress_by_shard(self._store), self._membership.count, now)


def unwatched(progress: Mapping[int, Mapping[str, Any]], count: int, now: datetime) -> list[int]:
    """Shards without a tick for :data:`UNWATCHED`, whoever has them."""
    return [
        shard
        for shard in range(count)
        if shard not in progress
        or now - datetime.fromisoformat(progress[shard]["ticked_at"]) > UNWATCHED
    ]


def nothing(now: datetime) -> Gathered:
    """What was gathered where nobody had to be asked."""
    return Gathered((), (), {}, now, {}, {}, (), {})


def whole_of(ticked: Sequence[Ticked]) -> Outcome:
    """What the ticks of several shards did, as of one."""
    outcomes = [one.outcome for one in ticked]
    if len(outcomes) == 1:
        return outcomes[0]
    with_rows = [one for one in outcomes if len(one.rows)]
    problems = dict.fromkeys(problem for one in outcomes for problem in one.problems)
    targets = {key: t for one in outcomes for key, t in one.targets.items()}
    return Outcome(
        rows=pl.concat([o.rows for o in with_rows]) if with_rows else pl.DataFrame(),
        verdicts=pl.concat([o.verdicts for o in with_rows]) if with_rows else pl.DataFrame(),
        transitions=tuple(t for one in outcomes for t in one.transitions),
        scrapes=pl.concat([empty_scrapes(), *(one.scrapes for one in outcomes)]),
        problems=tuple(problems),
        retired={key: why for one in outcomes for key, why in one.retired.items()},
        reborn=frozenset[TargetKey]().union(*(one.reborn for one in outcomes)),
        advices=tuple(answer for one in outcomes for answer in one.advices),
        targets=targets,
        minutes=pl.concat([no_rows(), *(one.minutes for one in outcomes)]),
        not_evaluated={i: why for one in outcomes for i, why in one.not_evaluated.items()},
    )


def whole_state(watches: Sequence[Watch]) -> State:
    """What metrics and the log take of the state, of several shards as of one."""
    states = [one.state for one in watches]
    if len(states) == 1:
        return states[0]
    no_state = State()
    reached = [state.evaluated_until for state in states if state.evaluated_until is not None]
    return State(
        gpus=pl.concat([no_state.gpus, *(state.gpus for state in states[:1])]),
        scrapes=pl.concat([no_state.scrapes, *(state.scrapes for state in states)]),
        evaluated_until=min(reached, default=None),
        targets={key: t for state in states for key, t in state.targets.items()},
        incidents={key: i for state in states for key, i in state.incidents.items()},
    )
