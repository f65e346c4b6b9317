"""The migrations make the tables that the code has."""

from __future__ import annotations

from alembic import command
from alembic.script import ScriptDirectory

from driftwatch.database_place import place_of
from driftwatch.installation import shipped
from driftwatch.store.database import open_engine, writing
from driftwatch.store.migrate import _config as alembic_config
from driftwatch.store.store import Store
from driftwatch.store.tables import SCHEMA_REVISION, metadata


def test_alembic_makes_them_and_has_nothing_to_add(database: str) -> None:
    Store.open(database).close()
    engine = open_engine(place_of(database))
    with writing(engine) as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        metadata.drop_all(connection)
        command.stamp(config, "base")
        command.upgrade(config, "head")
        command.check(config)  # raises where models and database differ
    engine.dispose()


def test_the_revision_in_the_code_is_the_newest_migration() -> None:
    heads = ScriptDirectory(str(shipped("migrations"))).get_heads()
    assert heads == [SCHEMA_REVISION]
