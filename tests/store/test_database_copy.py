"""A whole database into another one: all of it, or nothing."""

from __future__ import annotations

import lzma
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from store_cases import NOW, committer, pending, readings, rows

from driftwatch.database_place import SqliteFile, place_of
from driftwatch.errors import StoreError
from driftwatch.incidents.planner import PlannedDelivery
from driftwatch.store import Store
from driftwatch.store.database import open_engine, reading
from driftwatch.store.database_copy import copy_database
from driftwatch.store.migrate import upgrade_database, versions_of
from driftwatch.testing.postgres_server import PostgresServer

OLD = Path(__file__).parents[1] / "data" / "store" / "0.8.sqlite.xz"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A service's database, upgraded, with scrapes of two days."""
    path = tmp_path / "source.db"
    path.write_bytes(lzma.decompress(OLD.read_bytes()))
    upgrade_database(path)
    with Store.open(path) as store:
        tick = committer(store)
        kept = tuple(store.open_incidents().values())
        [page] = store.deliveries(kept[0].id)
        assert store.mark_sent(page, NOW)
        tick(*kept, scrapes=rows(400), gpus=readings(4))
        tick(*kept, scrapes=rows(400, NOW + timedelta(days=1)))
    return path


@pytest.fixture
def empty_url(postgres: PostgresServer) -> str:
    """A database without a table."""
    return postgres.url(postgres.new_database())


def tables(url: str) -> list[str]:
    engine = open_engine(place_of(url))
    names = sa.inspect(engine).get_table_names()
    engine.dispose()
    return sorted(names)


def everything(store: Store) -> tuple[object, ...]:
    since, until = NOW - timedelta(days=999), NOW + timedelta(days=999)
    incidents = store.incidents()
    return (
        incidents,
        [store.deliveries(one.id) for one in incidents],
        store.due_deliveries(until),
        store.marks([one.id for one in incidents]),
        store.silences(),
        store.memory(),
        store.advices(since, until),
        [store.report(week) for week in store.report_weeks()],
        store.scrapes(since, until).to_dicts(),
        store.gpus(since, until).to_dicts(),
        store.past(since, until).to_dicts(),
    )


def test_all_of_it_is_there_and_back_again(source: Path, empty_url: str, tmp_path: Path) -> None:
    steps: list[tuple[float, float]] = []
    copied = copy_database(
        SqliteFile(source), place_of(empty_url), lambda done, total: steps.append((done, total))
    )
    assert copied["scrape_batches"] >= 2 and copied["incidents"] == 1
    assert steps[-1] == (sum(copied.values()), sum(copied.values()))
    back = tmp_path / "back.db"
    assert copy_database(place_of(empty_url), SqliteFile(back)) == copied
    with Store.open(source) as one, Store.open(empty_url) as two, Store.open(back) as three:
        assert everything(one) == everything(two) == everything(three)


def test_what_comes_after_goes_on(source: Path, empty_url: str) -> None:
    """Ids go on after the copied ones, a sent page stays sent, an open incident open."""
    copy_database(SqliteFile(source), place_of(empty_url))
    with Store.open(empty_url, migrate=False) as store:
        [incident] = store.open_incidents().values()
        [sent] = store.deliveries(incident.id)
        assert sent.status == "sent"
        again = PlannedDelivery(incident.id, "firing", sent.receiver, "first", {}, NOW)
        other = PlannedDelivery(incident.id, "firing", "other", "first", {}, NOW)
        committer(store)(incident, pending("b"), deliveries=(again, other), scrapes=rows(4))
        assert [d.receiver for d in store.deliveries(incident.id)] == [sent.receiver, "other"]
        pages = [d for d in store.due_deliveries(NOW) if d.kind == "incident"]
        assert [(d.receiver, d.id > sent.id) for d in pages] == [("other", True)]


def test_a_target_with_rows_is_refused(source: Path, postgres_url: str, tmp_path: Path) -> None:
    for target in (postgres_url, str(tmp_path / "full.db")):
        with Store.open(target) as store:
            committer(store)(pending())
        with pytest.raises(StoreError) as caught:
            copy_database(SqliteFile(source), place_of(target))
        assert caught.value.code == "not-empty"
        assert "incidents has rows" in caught.value.message
        with Store.open(target) as store:
            assert list(store.open_incidents().values()) == [pending()]


def test_a_target_of_somebody_else_is_refused(
    source: Path, postgres: PostgresServer, empty_url: str
) -> None:
    name = str(place_of(empty_url)).rpartition("/")[2]
    postgres.query("CREATE TABLE customers (name text)", name)
    with pytest.raises(StoreError) as caught:
        copy_database(SqliteFile(source), place_of(empty_url))
    assert caught.value.code == "foreign"
    assert tables(empty_url) == ["customers"]


def test_a_source_that_a_service_uses_is_refused(source: Path, empty_url: str) -> None:
    with Store.open(source) as store, store.tick_lock():
        with pytest.raises(StoreError) as caught:
            copy_database(SqliteFile(source), place_of(empty_url))
        assert caught.value.code == "in-use"
    assert tables(empty_url) == []


def test_a_source_of_an_older_or_newer_schema_is_refused(
    tmp_path: Path, source: Path, empty_url: str
) -> None:
    old = tmp_path / "old.db"
    old.write_bytes(lzma.decompress(OLD.read_bytes()))
    engine = open_engine(SqliteFile(source))
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    for path, code in ((old, "older-schema"), (source, "newer-schema")):
        with pytest.raises(StoreError) as caught:
            copy_database(SqliteFile(path), place_of(empty_url))
        assert caught.value.code == code
    assert tables(empty_url) == []
    assert versions_of(old)[0] == "0007"


def test_a_failure_in_the_middle_leaves_nothing(
    source: Path, empty_url: str, tmp_path: Path
) -> None:
    def full(done: float, total: float) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    new = tmp_path / "new.db"
    for target in (empty_url, str(new)):
        with pytest.raises(KeyboardInterrupt):
            copy_database(SqliteFile(source), place_of(target), full)
    assert tables(empty_url) == []
    assert not new.exists()
    assert copy_database(SqliteFile(source), place_of(empty_url))["incidents"] == 1


KILLED = """
import sys, time
from driftwatch.database_place import place_of
from driftwatch.store.database_copy import copy_database
def progress(done, total):
    if done > total / 2:
        print("half", flush=True)
        time.sleep(60)
copy_database(place_of(sys.argv[1]), place_of(sys.argv[2]), progress)
"""


def test_a_process_that_is_killed_in_the_middle_leaves_nothing(
    source: Path, empty_url: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(source), empty_url], stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"half\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    until = time.monotonic() + 10
    while tables(empty_url) and time.monotonic() < until:
        time.sleep(0.05)
    assert tables(empty_url) == []
    with Store.open(source) as store:  # nor does it stay locked
        committer(store)()


def test_a_row_that_arrives_otherwise_is_noticed(
    source: Path, empty_url: str, postgres: PostgresServer
) -> None:
    """A trigger in the target changes what is written: the digests differ, nothing is kept."""
    upgrade_database(empty_url)
    name = str(place_of(empty_url)).rpartition("/")[2]
    postgres.query(
        "CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN NEW.comment = NEW.comment || '!'; RETURN NEW; END $$",
        name,
    )
    trigger = "CREATE TRIGGER t BEFORE INSERT ON silences FOR EACH ROW EXECUTE FUNCTION change()"
    postgres.query(trigger, name)
    with pytest.raises(StoreError, match=r"table silences of .* is not what was copied"):
        copy_database(SqliteFile(source), place_of(empty_url))
    engine = open_engine(place_of(empty_url))
    with reading(engine) as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM incidents")).scalar() == 0
    engine.dispose()


def test_into_itself(source: Path) -> None:
    with pytest.raises(StoreError, match="into itself"):
        copy_database(SqliteFile(source), SqliteFile(source))
