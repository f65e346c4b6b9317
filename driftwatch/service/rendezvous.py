"""Which pool is in which shard, and which process watches which shard. Pure.

Both are rendezvous hashing (Thaler and Ravishankar 1998): the one with the highest number for a
thing has it. So a process that comes takes only what it is to have, and of one that goes only its
own moves. Pools are dealt to a fixed number of shards, and those to the processes that are there:
what is remembered is a shard's, and moves as a whole.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan


@functools.lru_cache(maxsize=100_000)
def shard_of(pool: str, count: int) -> int:
    """The shard of a pool.

    >>> [shard_of(pool, 4) for pool in ("chat", "code", "batch")]
    [1, 2, 0]
    """
    return max(range(count), key=lambda shard: _number(pool, str(shard)))


def dealt(count: int, members: Collection[str]) -> dict[int, str]:
    """Shard → the member that is to watch it; nothing where nobody is there."""
    if not members:
        return {}
    return {
        shard: max(sorted(members), key=lambda name: _number(str(shard), name))
        for shard in range(count)
    }


def _number(thing: str, place: str) -> bytes:
    return hashlib.blake2b(f"{thing}\0{place}".encode(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Share:
    """The pools of one shard."""

    shard: int
    count: int

    def has_pool(self, pool: str) -> bool:
        """Whether a pool is among them."""
        return shard_of(pool, self.count) == self.shard


@dataclass(frozen=True, slots=True)
class OwnPools:
    """The pools of the shards that a process holds."""

    shards: frozenset[int]
    count: int
    plan: Plan

    def has(self, share: Share, plan: Plan) -> bool:
        """All pools of a shard are among them, as this plan has pools."""
        return share.shard in self.shards and plan.has_pools_of(self.plan)

    def targets(self, listed: Mapping[TargetKey, Target]) -> set[TargetKey]:
        """Those of the listed targets that are in them (:data:`driftwatch.collect.schema.Own`)."""
        return {
            key
            for key, one in listed.items()
            if shard_of(self.plan.pool_of(one).name, self.count) in self.shards
        }


class Pools:
    """The pools of listed targets; looked up once while a target's labels and the plan stay."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: dict[TargetKey, Target] = {}

    def of(self, targets: Mapping[TargetKey, Target], plan: Plan) -> Mapping[TargetKey, Target]:
        """The targets with their pools."""
        before = self._known if plan.has_pools_of(self._plan) else None
        self._plan, self._known = plan, dict(plan.assign(targets, before))
        return self._known
