"""What of an answer that was asked for some shards is a shard's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from service_cases import NarrowSource, shipped_plan

from driftwatch.collect.schema import scrape_frame
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import State
from driftwatch.service.rendezvous import OwnPools, Pools, Share, shard_of
from driftwatch.service.shard_parts import brought_to
from driftwatch.service.source_threads import Collecting
from driftwatch.service.watch import Brought

T0 = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
LATER = T0 + timedelta(minutes=1)
COUNT = 4
POOLS = {"a:1": "chat", "b:1": "code", "c:1": "batch"}


def target(instance: str, pool: str) -> Target:
    return Target(TargetKey(instance, "0"), {"instance": instance, "model_name": pool})


def brought(shard: int, asked_for: Collection[int], plan: Plan, plan_then: Plan) -> Brought:
    """To one shard, of an answer for some."""
    rows = [{"instance": name, "engine": "0", "time": T0, "ok": True} for name in POOLS]
    targets = {TargetKey(name, "0"): target(name, pool) for name, pool in POOLS.items()}
    source = NarrowSource(scrape_frame(rows), targets)
    collecting = Collecting([source])
    own_pools = OwnPools(frozenset(asked_for), COUNT, plan_then)
    gathered = collecting.gather({"frame": T0}, LATER, 5.0, own_pools)
    collecting.end()
    state = State(collected_until={"frame": T0})
    pools = Pools(plan).of(targets, plan)
    sources, share = [source], Share(shard, COUNT)
    return brought_to(share, state, gathered, sources, collecting, pools, plan, LATER)


@pytest.mark.parametrize("pool", POOLS.values())
def test_a_shard_has_its_part_of_an_answer_that_was_asked_for_it(pool: str) -> None:
    plan, shard = shipped_plan(), shard_of(pool, COUNT)
    found = brought(shard, {shard, 3}, plan, plan)
    (collected,) = found.collected
    (name,) = (name for name, of in POOLS.items() if of == pool)
    assert list(collected.scrapes["instance"]) == [name]
    assert found.collected_until == {"frame": LATER}
    # one pool is scraped: that says of the others too that somebody looked
    assert found.sources.looks.to_dicts() == [{"source": "frame", "start": T0}]


def test_a_shard_that_was_taken_after_the_question_asks_anew() -> None:
    plan, shard = shipped_plan(), shard_of("chat", COUNT)
    found = brought(shard, set(range(COUNT)) - {shard}, plan, plan)
    assert not found.collected
    assert found.collected_until == {"frame": T0}


def test_a_plan_with_other_pools_asks_anew() -> None:
    plan, shard = shipped_plan(), shard_of("chat", COUNT)
    found = brought(shard, range(COUNT), plan, replace(plan, pool_by=("namespace",)))
    assert not found.collected
    assert found.collected_until == {"frame": T0}
