"""Who watches which shard: joining and leaving, and what must not be let in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftwatch.database_place import PostgresPlace, place_of
from driftwatch.errors import StoreError
from driftwatch.service.membership import Membership
from driftwatch.service.rendezvous import dealt
from driftwatch.store.lease import LEADER, Leases, OtherHolder
from driftwatch.store.store import Store
from driftwatch.testing.postgres_server import PostgresServer

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


def test_two_of_one_name_are_refused(member: Callable[..., Membership]) -> None:
    a, again = member("a"), member("a")
    a.join()
    with pytest.raises(StoreError, match="another driftwatch run is called a") as caught:
        again.join()
    assert caught.value.code == "in-use"
    a.end()
    again.join()


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
