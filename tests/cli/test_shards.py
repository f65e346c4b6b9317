"""``driftwatch shards``: who watches what."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from driftwatch.database_place import PostgresPlace, place_of
from driftwatch.service.membership import Membership
from driftwatch.service.watch import PROGRESS
from driftwatch.store.lease import Leases
from driftwatch.store.store import Store, TickRecord

HEADER = ["SHARD", "PROCESS", "POOLS", "TARGETS", "EVALUATED", "LAST", "TICK", "TICK", "TAKES"]
AT = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)


def test_a_database_of_one_process_has_none(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    Store.open(tmp_path / "one.db").close()
    code, out, words = run("shards", "--db", tmp_path / "one.db")
    assert (code, out) == (0, "")
    assert words == "one process watches all pools; `shards: 16` deals them to several\n"
    _, out, _ = run("shards", "--db", tmp_path / "one.db", "--json")
    assert json.loads(out)["shards"] == []


def test_each_shard_says_who_watches_it_and_how_far_it_is(
    run: Callable[..., tuple[int, str, str]], postgres_url: str
) -> None:
    place = place_of(postgres_url)
    assert isinstance(place, PostgresPlace)
    member = Membership(Leases(place, 60.0), "pod-0", 2, 60.0, lambda: datetime.now(UTC))
    member.join()
    member.beat()
    progress = {
        "ticked_at": AT.isoformat(),
        "evaluated_until": None,
        "targets": 40,
        "pools": 3,
        "tick_seconds": 0.25,
    }
    with Store.open(postgres_url) as store:
        part = store.of_shard(1, member.leases()[1])
        memory = {PROGRESS: json.dumps(progress).encode()}
        part.commit_tick(TickRecord(AT, AT, memory=memory))
        code, out, words = run("shards", "--db", postgres_url)
        # they have a process, but it does not get through a tick of them
        assert code == 1
        said = "no tick of 2 shards for 90 s: 0, 1; the log of its process has the reason"
        assert words.splitlines()[-1] == said
        for shard, lease in member.leases().items():
            ticked = {**progress, "ticked_at": datetime.now(UTC).isoformat()}
            memory = {PROGRESS: json.dumps(ticked).encode()}
            store.of_shard(shard, lease).commit_tick(TickRecord(AT, AT, memory=memory))
        assert run("shards", "--db", postgres_url)[0] == 0
        part.commit_tick(TickRecord(AT, AT, memory={PROGRESS: b"\x00\xff"}))
        assert run("shards", "--db", postgres_url)[0] == 1
    assert out.splitlines()[-2:] == [
        "0\tpod-0\t-\t-\t-\t-\t-",
        "1\tpod-0\t3\t40\t-\t2026-03-02T09:30:00Z\t0.25 s",
    ]
    _, out, _ = run("shards", "--db", postgres_url, terminal=True)
    assert out.splitlines()[0].split() == HEADER
    assert out.splitlines()[-1].split()[0] == "pod-0"
    listed = json.loads(run("shards", "--db", postgres_url, "--json")[1])
    assert [one["name"] for one in listed["processes"]] == ["pod-0"]
    assert abs(listed["processes"][0]["clock_ahead_seconds"]) < 5
    member.end()
    code, out, words = run("shards", "--db", postgres_url)
    assert code == 1
    assert out.splitlines()[-2].split("\t")[1] == "nobody"
    assert words.splitlines()[-1] + "\n" == "nobody watches 2 shards: 0, 1\n"


@pytest.mark.parametrize("name", ["", "a b", "x" * 101, "eu/0"])
def test_a_process_needs_a_name_that_fits_a_line(
    run: Callable[..., tuple[int, str, str]], name: str
) -> None:
    code, _, words = run("run", "--name", name)
    assert code == 2
    assert "--name: 1 to 100 letters" in words
