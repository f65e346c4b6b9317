"""Servers and pools as of the newest minute: states, reasons, the last 24 h."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from web_cases import END, evidence_of, usual_plan

from driftwatch.model import Slo, Target, TargetKey
from driftwatch.pipeline.latest import latest_of
from driftwatch.pipeline.plan import Pool
from driftwatch.store.latest import SLOT, SLOTS, Latest, ServerNow, Trace, slot_of
from driftwatch.store.store import Store, TickRecord

MINUTE = timedelta(minutes=1)
WHY = "no baseline in use yet: 9 of 60 minutes of data"


def latest(*minutes: dict[str, Any], before: dict[str, Trace] | None = None) -> Latest:
    names = dict.fromkeys(one["instance"] for one in minutes)
    listed = {TargetKey(n, "0"): Target(TargetKey(n, "0"), {}, "p") for n in names}
    at = max(one.get("end", END) for one in minutes)
    plan = replace(usual_plan(), pools=(Pool("p", slo=Slo(1.0)),))
    return latest_of(evidence_of(minutes), listed, plan, before or {}, at)


@pytest.mark.parametrize(
    ("columns", "state", "why"),
    [
        ({}, "in target", None),
        ({"scrapes": 0.0}, "no data", "nothing scraped in the last minute"),
        ({"scrapes": 0.0, "coverage_missing_inputs": "x"}, "no data", "gone: x"),
        ({"slo_missed": True, "slower_at_equal_load": True}, "target missed", None),
        ({"slower_at_equal_load": True, "binding_limit": "kv_cache"}, "slower", None),
        ({"binding_limit": "kv_cache"}, "limit full", None),
        ({"slo_missed": None}, "as its baseline", None),
        ({"slo_missed": None, "slower_at_equal_load": None, "speed_unknown_reason": WHY,
          "speed_at_equal_load_ratio": None}, "not judged", WHY),
        ({"slo_missed": None, "slower_at_equal_load": None, "ttft_in_target_10m_ratio": 0.82,
          "ttft_in_target_10m_upper_ratio": 0.96, "speed_unknown_reason": WHY}, "not judged",
         "82 % to 96 % of requests met TTFT: too wide to tell whether that is enough"),
        ({"slo_missed": None, "slower_at_equal_load": None}, "not judged",
         "no latency targets and no baseline to judge by"),
    ],
)  # fmt: skip
def test_a_minute_has_one_state_and_a_reason_where_it_is_unknown(
    columns: dict[str, Any], state: str, why: str | None
) -> None:
    (server,) = latest({"instance": "a:1", **columns}).servers
    assert (server.state, server.why) == (state, why)


def test_a_pool_is_its_servers_in_numbers() -> None:
    tpot = {"tpot_in_target_10m_ratio": 0.5, "tpot_in_target_10m_upper_ratio": 0.75}
    found = latest(
        {"instance": "a:1"},
        {"instance": "b:1", "slo_missed": True, **tpot, "ttft_seconds_count": 300.0},
        {"instance": "c:1", "speed_at_equal_load_ratio": 0.8, "binding_limit": "kv_cache"},
        {"instance": "d:1", "scrapes": 0.0, "speed_at_equal_load_ratio": None,
         "ttft_in_target_10m_ratio": None, "binding_limit": None, "binding_margin_ratio": None},
    )  # fmt: skip
    ((pool, _),) = found.pools
    states = {"in target": 1, "target missed": 1, "limit full": 1, "no data": 1}
    assert pool.states == states
    # of 100, 300 and 100 requests; the worse of both latencies
    assert pool.in_target == pytest.approx((100 + 150 + 100) / 500)
    assert pool.in_target_at_most == pytest.approx((100 + 225 + 100) / 500)
    assert (pool.speed, pool.limit, pool.full_on, pool.required) == (0.8, "kv_cache", 1, 0.95)
    assert pool.why == "nothing scraped in the last minute"
    server = {one.instance: one for one in found.servers}
    assert (server["b:1"].in_target, server["b:1"].in_target_at_most) == (0.5, 0.75)
    assert (server["d:1"].speed, server["d:1"].margin) == (None, None)


def test_the_last_day_is_a_sum_of_minutes_whatever_their_ticks() -> None:
    minutes = [
        {"instance": name, "end": END - at * MINUTE, "ttft_in_target_10m_ratio": share}
        for at in reversed(range(90))
        for name, share in (("a:1", 1.0), ("b:1", 0.5 if at < 30 else 1.0))
    ]
    ((_, at_once),) = latest(*minutes).pools
    trace = None
    for at in range(0, 180, 20):
        part = minutes[at : at + 20]
        ((_, trace),) = latest(*part, before={} if trace is None else {"p": trace}).pools
    assert trace == at_once
    assert at_once.in_target[-4:] == [None, 1.0, 1.0, 0.75]
    assert at_once.speed[-4:] == [None, 1.0, 1.0, 1.0]
    later = at_once.with_minutes({}, END + 2 * SLOT)
    assert later.in_target[-4:] == [1.0, 0.75, None, None]
    assert at_once.with_minutes({}, END + SLOTS * SLOT).in_target == [None] * SLOTS
    assert slot_of(END) == END - SLOT


def test_a_tick_replaces_the_rows_of_its_batch_and_a_state_keeps_its_beginning(
    tmp_path: Path,
) -> None:
    def servers(store: Store) -> dict[str, ServerNow]:
        from driftwatch.web.database import WebStore

        web = WebStore(store._engine, store.place)
        return {one.instance: one for one in web.servers(9, 0, named={})[0]}

    def commit(store: Store, *minutes: dict[str, Any], end: Any) -> None:
        some = latest(*({**one, "end": end} for one in minutes))
        store.commit_tick(TickRecord(end, incidents=None, latest=some))

    with Store.open(tmp_path / "latest.db") as store:
        commit(store, {"instance": "a:1"}, {"instance": "b:1"}, end=END)
        other = {"instance": "c:1", "slo_missed": True}
        commit(store, {"instance": "a:1"}, other, end=END + MINUTE)
        found = servers(store)
        assert {n: one.since for n, one in found.items()} == {"a:1": END, "c:1": END + MINUTE}
        commit(store.of_batch(1, 2), {"instance": "c:1"}, end=END + 2 * MINUTE)
        commit(store, {"instance": "a:1", "slo_missed": True}, end=END + 3 * MINUTE)
        found = servers(store)
        assert found["c:1"].since == END + 2 * MINUTE and found["a:1"].since == END + 3 * MINUTE
        # a tick of many minutes, in one of which the state was another
        many = [{"instance": "a:1", "end": END + (4 + n) * MINUTE, "slo_missed": n != 2}
                for n in range(6)]  # fmt: skip
        for until, since in ((2, 3), (6, 7)):
            some = latest(*many[:until])
            store.commit_tick(TickRecord(some.at, incidents=None, latest=some))
            assert servers(store)["a:1"].since == END + since * MINUTE
