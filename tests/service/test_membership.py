"""Who watches which shard: joining and leaving, and what must not be let in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from driftwatch.database_place import PostgresPlace, place_of
from driftwatch.errors import StoreError
from driftwatch.service.leadership import Leadership
from driftwatch.service.membership import Membership
from driftwatch.service.rendezvous import dealt, shard_of
from driftwatch.store.lease import LEADER, Leases, OtherHolder
from driftwatch.store.migrate import upgrade_database
from driftwatch.store.store import Store
from driftwatch.testing.postgres_server import NOT_INSTALLED, PostgresServer, installed

COUNT, SECONDS = 16, 60.0
NAMES = st.sets(st.text("abcdefgh0123456789-", min_size=1, max_size=12), min_size=1, max_size=8)
GONE = "expires_at = clock_timestamp() - interval '1 second'"


@given(NAMES, st.text("abc-", min_size=1, max_size=8))
def test_who_comes_takes_only_its_own_and_of_who_goes_only_its_own_moves(
    names: set[str], comer: str
) -> None:
    before, after = dealt(COUNT, names - {comer}), dealt(COUNT, names | {comer})
    moved = {shard for shard in before if before[shard] != after[shard]}
    assert all(after[shard] == comer for shard in moved)
    assert set(after) == set(range(COUNT))
    assert set(after.values()) <= names | {comer}


def test_shares_are_about_equal() -> None:
    pools = [f"team-{n}/model" for n in range(4000)]
    sizes = [sum(shard_of(pool, COUNT) == shard for pool in pools) for shard in range(COUNT)]
    assert max(sizes) < 1.3 * len(pools) / COUNT
    assert min(sizes) > 0.7 * len(pools) / COUNT


@pytest.fixture
def member(postgres_url: str) -> Iterator[Callable[..., Membership]]:
    """Makes members of one database."""
    place = place_of(postgres_url)
    assert isinstance(place, PostgresPlace)
    made: list[Membership] = []

    def make(name: str, *, ahead_seconds: float = 0.0, count: int = COUNT) -> Membership:
        def now() -> datetime:
            return datetime.now(UTC) + timedelta(seconds=ahead_seconds)

        made.append(Membership(Leases(place, SECONDS), name, count, SECONDS, now))
        return made[-1]

    yield make
    for one in made:
        one.end()


def held(*members: Membership) -> list[set[int]]:
    return [set(one.leases()) for one in members]


def test_shards_go_from_hand_to_hand(
    member: Callable[..., Membership], postgres: PostgresServer, postgres_url: str
) -> None:
    a, b = member("a"), member("b")
    a.join()
    assert a.beat()
    assert held(a) == [set(range(COUNT))]
    b.join()
    assert not b.beat()  # they are a's until it gives them back
    a.beat()
    kept = {shard for shard, name in dealt(COUNT, ["a", "b"]).items() if name == "a"}
    assert held(a, b) == [kept, set()]
    assert not b.beat()
    a.give_back()
    assert b.beat()
    assert held(a, b) == [kept, set(range(COUNT)) - kept]
    # b is killed: its leases and its word end
    database = postgres_url.partition("@/")[2].partition("?")[0]
    assert not a.beat()
    postgres.query(f"UPDATE leases SET {GONE} WHERE holder = 'b'", database)
    postgres.query(f"UPDATE members SET {GONE} WHERE name = 'b'", database)
    assert a.beat()
    assert held(a) == [set(range(COUNT))]
    # it was only stopped: what it held is another's by now
    b.beat()
    assert held(b) == [set()]
    a.end()
    assert b.beat()
    assert held(b) == [set(range(COUNT))]


def test_the_fence_keeps_a_shard_that_was_taken_over_from_writing(
    member: Callable[..., Membership], postgres: PostgresServer, postgres_url: str
) -> None:
    a = member("a")
    a.join()
    a.beat()
    database = postgres_url.partition("@/")[2].partition("?")[0]
    postgres.query(f"UPDATE leases SET {GONE}, fence = fence + 1", database)
    lease = a.leases()[3]
    with Store.open(postgres_url) as store:
        part = store.of_shard(3, lease)
        with pytest.raises(StoreError, match="taken over") as caught:
            part.write_day(datetime(2026, 3, 1, tzinfo=UTC), pl.DataFrame())
    assert caught.value.code == "lease-lost"


def test_what_fails_beside_a_beat_does_not_end_the_beats(
    member: Callable[..., Membership],
) -> None:
    one, calls = member("a"), list[int]()
    one._seconds = 0.3

    def fails() -> None:
        calls.append(1)
        raise RuntimeError("slack")

    one.join()
    one.start(lambda: None, fails)
    deadline = time.monotonic() + 20
    while len(calls) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(calls) >= 3


def test_two_of_one_name_are_refused(member: Callable[..., Membership]) -> None:
    a, again = member("a"), member("a")
    a.join()
    with pytest.raises(StoreError, match="another driftwatch run is called a") as caught:
        again.join()
    assert caught.value.code == "in-use"
    a.end()
    again.join()


def test_one_that_died_and_begins_again_waits_for_its_own_name(
    member: Callable[..., Membership], postgres: PostgresServer, postgres_url: str
) -> None:
    member("a").join()
    database = postgres_url.partition("@/")[2].partition("?")[0]
    soon = "expires_at = clock_timestamp() + interval '1 second'"
    postgres.query(f"UPDATE members SET {soon}", database)
    member("a").join(patience_seconds=10.0)


@pytest.mark.parametrize("ahead_seconds", [300.0, -300.0])
def test_a_clock_five_minutes_off_watches_nothing(
    ahead_seconds: float, member: Callable[..., Membership]
) -> None:
    right, wrong = member("right"), member("wrong", ahead_seconds=ahead_seconds)
    right.join()
    wrong.join()
    assert not wrong.beat()
    assert right.beat()
    assert held(right, wrong) == [set(range(COUNT)), set()]
    side = "ahead of" if ahead_seconds > 0 else "behind"
    assert wrong.why_not_ready() == f"its clock is 300 s {side} the database's"
    assert right.why_not_ready() is None


def test_another_number_of_shards_is_refused(member: Callable[..., Membership]) -> None:
    member("a").join()
    with pytest.raises(StoreError, match="deals pools to 16 shards, the configuration has 8"):
        member("b", count=8).join()


def test_shards_do_not_begin_beside_a_process_that_watches_all(
    member: Callable[..., Membership], postgres_url: str
) -> None:
    place = place_of(postgres_url)
    assert isinstance(place, PostgresPlace)
    leases = Leases(place, SECONDS)
    lease = leases.take("host/1")
    assert not isinstance(lease, OtherHolder)
    assert lease.name == LEADER
    one = member("a")
    with pytest.raises(StoreError, match="host/1 watches this database without shards"):
        one.join()
    leases.release(lease)
    one.join()
    leases.close()


def test_an_older_version_beside_a_newer_one_is_refused(
    member: Callable[..., Membership], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("driftwatch.service.membership.__version__", "99.1.0")
        member("new").join()
    with pytest.raises(StoreError, match=r"new watches this database with driftwatch 99\.1\.0"):
        member("old").join()


def test_a_database_that_does_not_answer_costs_nothing_but_time(
    member: Callable[..., Membership],
) -> None:
    one = member("a")
    one.join()
    one.beat()
    shards = held(one)
    with pytest.MonkeyPatch.context() as gone:

        def fails(*_: object) -> None:
            raise StoreError("database postgresql:///x is stopping or restarting")

        gone.setattr(one._members, "beat", fails)
        assert not one.beat()
        assert held(one) == shards  # until its leases could have ended
        assert "restarting" in (one.why_not_ready() or "")
        late = one._clock() + SECONDS
        gone.setattr(one, "_clock", lambda: late)
        assert held(one) == [set()]
    one.beat()
    assert held(one) == shards
    assert one.why_not_ready() is None


@pytest.mark.skipif(not installed(), reason=NOT_INSTALLED)
def test_a_database_that_is_away_is_no_reason_to_restart() -> None:
    """A process that is restarted meanwhile cannot begin, and comes back late."""
    with PostgresServer() as server:
        name = server.new_database()
        upgrade_database(server.url(name))
        place = place_of(server.url(name))
        assert isinstance(place, PostgresPlace)
        seconds = [0.0]
        one = Membership(
            *(Leases(place, SECONDS), "a", COUNT, SECONDS),
            lambda: datetime.now(UTC),
            lambda: seconds[0],
        )
        one.join()
        assert one.beat()
        server.stop("immediate")
        seconds[0] += 3600
        assert not one.beat()
        assert one.leases() == {}
        assert one.why_not_ready() is not None
        assert one.why_unhealthy() is None
        server.start()
        one.beat()
        assert one.why_not_ready() is None
        assert set(one.leases()) == set(range(COUNT))
        # a thread that hangs is one
        seconds[0] += 3600
        assert one.why_unhealthy() == "no look at the members for 3600 s"
        one.end()


def test_the_leader_has_its_member_s_name_and_no_other_member_is_called_a_standby(
    postgres_url: str,
) -> None:
    place = place_of(postgres_url)
    assert isinstance(place, PostgresPlace)
    with Store.open(postgres_url), capture_logs() as log:
        each = [
            Leadership(Leases(place, SECONDS), SECONDS, member=name) for name in ("eu-0", "eu-1")
        ]
        assert [one.campaign() for one in each] == [True, False]
        for one in each:
            one.end()
    leads, follows = log
    assert leads["event"] == "leads"
    assert leads["holder"].startswith("eu-0/")
    assert follows["event"] == "does not lead"
    assert follows["reason"] == f"{leads['holder']} leads"
