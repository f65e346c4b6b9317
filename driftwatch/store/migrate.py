"""Make a database, or bring an older one to this version's schema.

The tables of procrastinate, beside driftwatch's own in the same schema of PostgreSQL, are its own
business: its installed version brings them, ``meta`` has the name of its newest migration that was
run. Without it installed there are none, and no worker.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    inspect,
    text,
)

from driftwatch import __version__
from driftwatch.database_place import Place, PostgresPlace, place_of
from driftwatch.errors import StoreError
from driftwatch.installation import shipped
from driftwatch.store.database import (
    is_postgres,
    named_failures,
    open_engine,
    reading,
    require_place,
    writing,
)
from driftwatch.store.sqlite import make_file, use_write_ahead_log
from driftwatch.store.tables import SCHEMA_REVISION, meta, metadata

if TYPE_CHECKING:
    from alembic.config import Config


def schema_revision(connection: Connection, place: Place) -> str | None:
    """The revision a database is at; None for an empty one.

    Raises StoreError: ``foreign`` where there are tables that driftwatch did not make.
    """
    names = set(inspect(connection).get_table_names())
    if "alembic_version" in names and "incidents" in names:
        revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return None if revision is None else str(revision)
    if names:
        raise StoreError(
            f"{place} is a database, but not of driftwatch "
            f"(tables: {', '.join(sorted(names)[:5])})",
            code="foreign",
            help_text="give driftwatch a database of its own",
        )
    return None


def check_revision(revision: str | None, place: Place) -> None:
    """Refuse a schema that this version cannot work on.

    Raises StoreError: ``older-schema``, or ``other-schema`` for one that no migration leads from.
    """
    if revision == SCHEMA_REVISION:
        return
    if revision is None or revision in _known_revisions():
        raise StoreError(
            f"database {place} has "
            + (f"schema {revision}" if revision else "no tables of driftwatch")
            + f", this version needs schema {SCHEMA_REVISION}",
            code="older-schema",
            help_text=_upgrade_command(place),
        )
    raise StoreError(
        f"database {place} has schema {revision}, and none that leads to {SCHEMA_REVISION}",
        code="other-schema",
        help_text=f"use the version that wrote it, or another database: driftwatch {__version__} "
        "upgrades no database of an earlier version",
    )


def _upgrade_command(place: Place) -> str:
    if isinstance(place, PostgresPlace):
        return "run, with the same --db or -c: driftwatch db upgrade"
    return f"run: driftwatch db upgrade --db {place}"


def upgrade(engine: Engine, place: Place) -> tuple[str | None, str]:
    """Run the missing migrations in one transaction.

    Returns the revision before (None for an empty database) and after.

    Raises StoreError: no migration leads from its schema, or it is not driftwatch's.
    """
    if not isinstance(place, PostgresPlace):
        make_file(place.path)
    with reading(engine) as connection:
        revision = schema_revision(connection, place)
        if revision == SCHEMA_REVISION and not is_queue_behind(connection):
            return revision, revision
    if not is_postgres(engine):
        use_write_ahead_log(engine)
    with writing(engine) as connection:
        # asked again inside the write transaction: of two that start at once, one migrates
        before = schema_revision(connection, place)
        if before == SCHEMA_REVISION:
            upgrade_queue(connection)
            return before, before
        if before is not None and before not in _known_revisions():
            check_revision(before, place)
        if before is None:
            _make_tables(connection)
        else:
            _migrate(connection)
        upgrade_queue(connection)
    return before, SCHEMA_REVISION


def _make_tables(connection: Connection) -> None:
    """All tables in an empty database, which is at the newest revision then."""
    if is_postgres(connection):
        _require_utf8(connection)
    metadata.create_all(connection)
    name = Column("version_num", String(32), primary_key=True)
    versions = Table("alembic_version", MetaData(), name)
    versions.create(connection, checkfirst=True)
    connection.execute(versions.insert().values(version_num=SCHEMA_REVISION))


def _migrate(connection: Connection) -> None:
    from alembic import command

    if is_postgres(connection):
        connection.execute(text("SELECT set_config('statement_timeout', '0', true)"))
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _require_utf8(connection: Connection) -> None:
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise StoreError(
            f"the database has the encoding {encoding}, driftwatch needs UTF8",
            code="unsupported",
            help_text="make it with: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
        )


def upgrade_database(database: str | Path | Place) -> tuple[str | None, str]:
    """Bring one database to this version's schema; makes the file where there is none.

    Returns the revision before (None for a new or empty database) and after.

    Raises StoreError: as :func:`upgrade`, or the database does not serve.
    """
    place = place_of(database)
    require_place(place, file_too=False)
    engine = open_engine(place)
    try:
        with named_failures(place):
            return upgrade(engine, place)
    finally:
        engine.dispose()


def _known_revisions() -> frozenset[str]:
    from alembic.script import ScriptDirectory

    script = ScriptDirectory.from_config(_config())
    return frozenset(revision.revision for revision in script.walk_revisions())


def _config() -> Config:
    from alembic.config import Config

    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    # the parser behind it reads % as its own
    config.set_main_option("script_location", str(shipped("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


_NAME = "procrastinate"
_THERE = text("SELECT to_regclass('procrastinate_jobs') IS NOT NULL")


def has_procrastinate() -> bool:
    """Whether it is installed."""
    return find_spec(_NAME) is not None


def is_queue_behind(connection: Connection) -> bool:
    """Whether the installed procrastinate needs newer tables; False where it is not installed.

    ``connection``: of any transaction on a database of this version's schema.
    """
    if not is_postgres(connection) or not has_procrastinate():
        return False
    return _applied(connection) != _migrations()[-1].name


def upgrade_queue(connection: Connection) -> None:
    """Make its tables, or run its missing migrations, within a write transaction."""
    if not is_queue_behind(connection):
        return
    applied, migrations = _applied(connection), _migrations()
    if applied is not None:
        scripts = [one.read_text(encoding="utf-8") for one in migrations if one.name > applied]
    elif connection.execute(_THERE).scalar_one():
        scripts = []  # left there by a downgrade
    else:
        scripts = [(_sql() / "schema.sql").read_text(encoding="utf-8")]
    driver = connection.connection.driver_connection
    for script in scripts:
        driver.execute(script)  # type: ignore[union-attr]
    connection.execute(meta.delete().where(meta.c.name == _NAME))
    connection.execute(meta.insert().values(name=_NAME, value=migrations[-1].name))


def _applied(connection: Connection) -> str | None:
    query = meta.select().where(meta.c.name == _NAME)
    row = connection.execute(query).first()
    return None if row is None else str(row.value)


def _migrations() -> list[Path]:
    return sorted((_sql() / "migrations").glob("*.sql"))


def _sql() -> Path:
    """Its folder of statements; finding it imports nothing, which would take half a second."""
    spec = find_spec(_NAME)
    places = [] if spec is None else [*(spec.submodule_search_locations or ())]
    return Path(places[0]) / "sql"
