"""Every revision with rows in it: up to this version and, where that is offered, back."""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from old_rows import ROWS, of_columns

from driftwatch.database_place import SqliteFile, place_of
from driftwatch.store import Store
from driftwatch.store.database import open_engine, reading, writing
from driftwatch.store.database_copy import _content as content_of
from driftwatch.store.migrate import _config as alembic_config
from driftwatch.store.migrate import upgrade_database, versions_of
from driftwatch.store.tables import SCHEMA_REVISION, UtcTime, metadata
from driftwatch.testing.postgres_server import PostgresServer

pytestmark = pytest.mark.usefixtures("migrations_run")

REVISIONS = [f"{number:04}" for number in range(1, int(SCHEMA_REVISION) + 1)]
DATA = Path(__file__).parents[1] / "data" / "store"
FRAMES = {"scrape_batches", "gpu_batches", "minute_batches", "day_batches", "verifications"}


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """A database without a table."""
    if request.param == "sqlite":
        engine = open_engine(SqliteFile(tmp_path / "old.db"))
        yield engine
        engine.dispose()
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = server.new_database()
    engine = open_engine(place_of(server.url(name)))
    yield engine
    engine.dispose()
    server.drop_database(name)


def go_to(engine: sa.Engine, revision: str, *, back: bool = False) -> None:
    with writing(engine) as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        (command.downgrade if back else command.upgrade)(config, revision)


def fill(engine: sa.Engine) -> dict[str, list[dict[str, Any]]]:
    """Rows in every table of the revision, with the columns that it has."""
    filled: dict[str, list[dict[str, Any]]] = {}
    inspector = sa.inspect(engine)
    tables = set(inspector.get_table_names())
    with writing(engine) as connection:
        for name, rows in ROWS.items():
            if name not in tables:
                continue
            there = {column["name"] for column in inspector.get_columns(name)}
            filled[name] = [{k: v for k, v in row.items() if k in there} for row in rows]
            for row in filled[name]:
                connection.execute(of_columns(name, row).insert(), row)
    assert tables - {"alembic_version", "leases"} <= {
        *filled,
        *(f"{name}_default" for name in FRAMES),
        *(f"{name}_20260301" for name in FRAMES),
    }
    return filled


def stored(engine: sa.Engine, name: str, like: Mapping[str, Any]) -> list[dict[str, Any]]:
    with reading(engine) as connection:
        return [dict(row) for row in connection.execute(of_columns(name, like).select()).mappings()]


def holds(engine: sa.Engine, name: str, rows: list[dict[str, Any]]) -> bool:
    """Whether the table has these rows and no other; the outbox has reports too, and new ids."""
    outbox = name in ("deliveries", "report_deliveries")
    there = {column["name"] for column in sa.inspect(engine).get_columns(name)}
    rows = [{k: v for k, v in row.items() if k in there - {"id"} or not outbox} for row in rows]
    both = [(row, stored(engine, name, row)) for row in rows]
    return all(row in there and (len(there) == len(rows) or outbox) for row, there in both)


@pytest.mark.parametrize("revision", REVISIONS)
def test_rows_of_a_revision_are_there_after_the_upgrade_and_back(
    empty: sa.Engine, revision: str
) -> None:
    go_to(empty, revision)
    before = fill(empty)
    go_to(empty, "head")
    after = sa.inspect(empty).get_table_names()
    for name, rows in before.items():
        if name in FRAMES and revision < "0006":
            assert stored(empty, name, rows[0]) == []
        elif name in after:
            assert holds(empty, name, rows), name
    silence = stored(empty, "silences", {"starts_at": datetime.now(UTC)})
    assert [row["starts_at"] for row in silence] == [ROWS["silences"][0]["starts_at"]]
    sent = stored(empty, "deliveries", {"kind": "", "subject": "", "event": "", "status": ""})
    kinds = {row["kind"] for row in sent}
    # the same to two receivers, once; a report beside it
    payloads = [row["document"] for row in stored(empty, "payloads", {"id": 0, "document": ""})]
    page, report = ROWS["payloads"][0]["document"], ROWS["reports"][0]["document"]
    assert payloads == [page, report][: len(kinds)]
    assert kinds == {"incident"} | ({"report"} if "0004" <= revision < "0008" else set())
    if revision == "0001":
        return  # 0004 and later come down to it below
    go_to(empty, revision, back=True)
    for name, rows in before.items():
        if not (name in (*FRAMES, "calibrations") and revision < "0006"):
            assert holds(empty, name, rows), name
    go_to(empty, "head")


def test_alembic_has_nothing_to_add(database: str) -> None:
    Store.open(database).close()
    engine = open_engine(place_of(database))
    with writing(engine) as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.check(config)  # raises where models and database differ
    engine.dispose()


def raw_copy(source: sa.Engine, target: sa.Engine) -> None:
    """Rows of one schema between two databases of it; times keep their zone."""
    names = [n for n in sa.inspect(source).get_table_names() if n != "alembic_version"]
    there = sa.MetaData()
    there.reflect(target, only=names)
    with reading(source) as old, writing(target) as new:
        for table in there.sorted_tables:
            for column in table.columns:
                if isinstance(column.type, sa.DateTime):
                    column.type = UtcTime()
            rows = [dict(row) for row in old.execute(table.select()).mappings()]
            if rows:
                new.execute(table.insert(), rows)
            if rows and "id" in table.c and isinstance(table.c.id.type, sa.Integer):
                sequence = sa.func.pg_get_serial_sequence(table.name, "id")
                new.execute(sa.select(sa.func.setval(sequence, max(row["id"] for row in rows))))


@pytest.mark.parametrize(
    ("version", "revision"), [("0.6", "0005"), ("0.8", "0007"), ("0.10", "0009")]
)
def test_a_real_database_is_the_same_in_both_after_the_upgrade(
    postgres: PostgresServer, tmp_path: Path, version: str, revision: str
) -> None:
    path = tmp_path / "old.db"
    path.write_bytes(lzma.decompress((DATA / f"{version}.sqlite.xz").read_bytes()))
    assert versions_of(path)[0] == revision
    name = postgres.new_database()
    place = place_of(postgres.url(name))
    old, new = open_engine(SqliteFile(path)), open_engine(place)
    go_to(new, revision)
    raw_copy(old, new)
    for database in (path, place):
        assert upgrade_database(database) == (revision, SCHEMA_REVISION)
    with reading(old) as one, reading(new) as other:
        for table in metadata.sorted_tables:
            if table.name != "meta":  # each database's own
                assert content_of(one, table) == content_of(other, table), table.name
        assert content_of(one, metadata.tables["incidents"]).rows == 1
    with Store.open(place, migrate=False) as store:
        [incident] = store.open_incidents().values()
        assert store.marks([incident.id])[incident.id].because == "cap was full"
        if version != "0.6":
            assert len(store.past(incident.started_at, incident.started_at + timedelta(days=1)))
    old.dispose()
    new.dispose()
    postgres.drop_database(name)
