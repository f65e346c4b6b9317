"""Databases of 0.11: upgraded with what they hold, to the tables that a new one has."""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory
from fakes.postgres_server import PostgresServer

from driftwatch.database_place import Place, place_of
from driftwatch.installation import shipped
from driftwatch.pipeline.stored_state import state_from
from driftwatch.store import Store
from driftwatch.store.database import open_engine, reading, writing
from driftwatch.store.migrate import _config as alembic_config
from driftwatch.store.migrate import upgrade_database, versions_of
from driftwatch.store.tables import SCHEMA_REVISION, metadata

pytestmark = pytest.mark.usefixtures("migrations_run")

DATA = Path(__file__).parents[1] / "data" / "store"
INCIDENT = "b3f12076a7d1"


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """As 0.11 left it."""
    if request.param == "sqlite":
        path = tmp_path / "old.db"
        path.write_bytes(lzma.decompress((DATA / "0.11.sqlite.xz").read_bytes()))
        yield place_of(path)
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = server.new_database()
    with psycopg.connect(server.url(name)) as connection:
        connection.execute(lzma.decompress((DATA / "0.11.sql.xz").read_bytes()))
    yield place_of(server.url(name))
    server.drop_database(name)


@pytest.fixture
def new(old: Place, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A new database of the same kind."""
    kept = str(tmp_path / "new.db")
    if not hasattr(old, "path"):
        kept = request.getfixturevalue("postgres_url")
    Store.open(kept).close()
    yield place_of(kept)


def held(place: Place) -> dict[str, list[dict[str, Any]]]:
    """Every row of the tables that this version has, without columns that it has not."""
    found = {}
    engine = open_engine(place)
    with reading(engine) as connection:
        inspector = sa.inspect(connection)
        for table in metadata.sorted_tables:
            if not inspector.has_table(table.name):
                continue
            there = {column["name"] for column in inspector.get_columns(table.name)}
            rows = connection.execute(sa.select(*(c for c in table.c if c.name in there)))
            found[table.name] = sorted((dict(row) for row in rows.mappings()), key=repr)
    engine.dispose()
    return found


def plain(condition: str) -> str:
    """A check without the casts that PostgreSQL writes into it."""
    return re.sub(r"::(text|character varying)|[()]|\[\]", "", condition)


def schema(place: Place) -> dict[str, object]:
    """What a database says of each table, without the order of its columns."""
    engine = open_engine(place)
    found = sa.inspect(engine)
    tables = {
        name: (
            sorted((c["name"], plain(c["sqltext"])) for c in found.get_check_constraints(name)),
            sorted(c["name"] or "" for c in found.get_unique_constraints(name)),
            sorted((c["name"] or "", str(c["options"])) for c in found.get_foreign_keys(name)),
            found.get_pk_constraint(name)["constrained_columns"],
            sorted(
                (
                    i["name"] or "",
                    i["column_names"],
                    i["unique"],
                    sorted((k, str(v)) for k, v in i.get("dialect_options", {}).items()),
                )
                for i in found.get_indexes(name)
            ),
            sorted(
                (c["name"], repr(c["type"]), c["nullable"], c["default"])
                for c in found.get_columns(name)
            ),
        )
        for name in found.get_table_names()
        if name != "alembic_version"
    }
    engine.dispose()
    return tables


def test_an_upgraded_database_has_its_rows_and_the_tables_of_a_new_one(
    old: Place, new: Place
) -> None:
    before = held(old)
    assert upgrade_database(old) == ("0011", SCHEMA_REVISION)
    after = held(old)
    for name, rows in before.items():
        if name not in ("meta", "memory"):
            columns = set(rows[0]) if rows else set()
            assert [{k: v for k, v in row.items() if k in columns} for row in after[name]] == rows
    gone = {row["name"] for row in before["memory"]} - {row["name"] for row in after["memory"]}
    ticks = {
        f"tick.{name}"
        for name in ("alive", "forgotten", "last", "plateau", "seen", "silent", "traffic")
    }
    assert gone == {"digest", "rules.backtest", "web.forecast.1", *ticks}
    assert sum(map(len, after.values())) > 15
    assert schema(old) == schema(new)
    with Store.open(old, migrate=False) as store:
        [incident] = store.open_incidents().values()
        assert store.marks([incident.id])[incident.id].because == "cap was full"
        assert len(store.past(incident.started_at, incident.started_at + timedelta(days=1)))
        state = state_from(store, incident.started_at + timedelta(days=1))
        assert state.targets
        assert len(state.minutes)


def test_alembic_has_nothing_to_add(old: Place, new: Place) -> None:
    upgrade_database(old)
    for place in (old, new):
        engine = open_engine(place)
        with writing(engine) as connection:
            config = alembic_config()
            config.attributes["connection"] = connection
            command.check(config)  # raises where models and database differ
        engine.dispose()
        assert versions_of(place)[0] == SCHEMA_REVISION


def test_the_revision_in_the_code_is_the_newest_migration() -> None:
    heads = ScriptDirectory(str(shipped("migrations"))).get_heads()
    assert heads == [SCHEMA_REVISION]
