"""A pool's incident while the servers that it speaks for are silenced one by one."""

from __future__ import annotations

from dataclasses import replace

from planning_cases import BOSS, NOW, ONCALL, Pager, firing, silence

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.planner import Routes

POOL = replace(firing(), key="X{pool=chat}", target={"pool": "chat"})
FIRED = Transition(POOL, "firing", NOW)


def server(name: str) -> Incident:
    one = firing(name)
    return replace(one, state="pending", firing_at=None, page=None, part_of=POOL.key)


def pager(*names: str) -> Pager:
    servers = {one.key: one for one in map(server, names)}
    return Pager(Routes((ONCALL, BOSS)), incidents=servers)


def test_a_pool_of_which_every_server_is_silenced_pages_nobody() -> None:
    quiet = pager("b", "c")
    first, last = silence("instance=b", "first"), silence("instance=c", "last", hours=3)
    quiet.silences = [last, first]
    plan = quiet.tick(0, FIRED)
    assert quiet.sent(plan) == []
    assert plan.open_incidents[POOL.key].silenced_by == "first"
    assert quiet.sent(quiet.tick(1)) == [("oncall", "firing", "silence ended", 0)]


def test_one_server_that_is_not_silenced_is_enough_for_a_page() -> None:
    page = [("oncall", "firing", "first", 0)]
    loud = pager("b", "c")
    loud.silences = [silence("instance=b")]
    assert loud.sent(loud.tick(0, FIRED)) == page

    joined = pager("b")
    joined.silences = [silence("instance=b")]
    assert joined.sent(joined.tick(0, FIRED)) == []
    joined.incidents["X{instance=c}"] = server("c")
    assert joined.sent(joined.tick(0.1)) == [("oncall", "firing", "silence ended", 0)]
