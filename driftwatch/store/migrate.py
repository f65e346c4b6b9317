"""Bring a database to this version's schema. Alembic is imported only where there is work."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

from driftwatch import __version__
from driftwatch.errors import StoreError
from driftwatch.installation import shipped
from driftwatch.store.database import (
    database_path,
    named_failures,
    open_engine,
    reading,
    require_place,
    use_write_ahead_log,
    writing,
)
from driftwatch.store.tables import SCHEMA_REVISION, meta

if TYPE_CHECKING:
    from alembic.config import Config


def schema_revision(connection: Connection, path: Path) -> str | None:
    """The revision a database is at; None for an empty one.

    Raises StoreError: ``foreign`` where there are tables that driftwatch did not make.
    """
    names = set(inspect(connection).get_table_names())
    if "alembic_version" in names and "incidents" in names:
        revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return None if revision is None else str(revision)
    if names:
        raise StoreError(
            f"{path} is a database, but not of driftwatch (tables: {', '.join(sorted(names)[:5])})",
            code="foreign",
            help_text="give driftwatch a file of its own",
        )
    return None


def check_revision(revision: str | None, path: Path, written_by: str | None) -> None:
    """Refuse a schema that this version cannot work on.

    Raises StoreError: ``newer-schema`` or ``older-schema``.
    """
    if revision == SCHEMA_REVISION:
        return
    if revision is None or revision in _known_revisions():
        raise StoreError(
            f"database {path} has schema {revision or 'none'}, this version needs "
            f"{SCHEMA_REVISION}",
            code="older-schema",
            help_text=f"run: driftwatch db upgrade --db {path}",
        )
    raise StoreError(
        f"database {path} has schema {revision}, newer than this version's {SCHEMA_REVISION}"
        + (f"; it was written by driftwatch {written_by}" if written_by else ""),
        code="newer-schema",
        help_text=f"use that version again (this is {__version__}), or another database",
    )


def upgrade(engine: Engine, path: Path) -> tuple[str | None, str]:
    """Run the missing migrations in one transaction.

    Returns the revision before (None for an empty database) and after.

    Raises StoreError: the database is newer than this version, or not driftwatch's.
    """
    with reading(engine) as connection:
        revision = schema_revision(connection, path)
    if revision == SCHEMA_REVISION:
        return revision, revision
    use_write_ahead_log(engine)
    with writing(engine) as connection:
        # asked again inside the write transaction: of two that start at once, one migrates
        before = schema_revision(connection, path)
        if before == SCHEMA_REVISION:
            return before, before
        if before is not None and before not in _known_revisions():
            check_revision(before, path, written_by(connection))
        from alembic import command

        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.execute(meta.delete().where(meta.c.name == "upgraded_by"))
        connection.execute(meta.insert().values(name="upgraded_by", value=__version__))
    return before, SCHEMA_REVISION


def upgrade_file(path_or_url: str | Path) -> tuple[str | None, str]:
    """Bring one database to this version's schema; makes the file where there is none.

    Returns the revision before (None for a new or empty database) and after.

    Raises StoreError: as :func:`upgrade`, or the database does not serve.
    """
    path = database_path(path_or_url)
    require_place(path, file_too=False)
    engine = open_engine(path)
    try:
        with named_failures(path):
            return upgrade(engine, path)
    finally:
        engine.dispose()


def versions_of(path_or_url: str | Path) -> tuple[str | None, str | None]:
    """The schema revision of one database, and the driftwatch version that upgraded it last.

    Raises StoreError: it is missing, not driftwatch's, or does not serve.
    """
    path = database_path(path_or_url)
    require_place(path, file_too=True)
    engine = open_engine(path)
    try:
        with named_failures(path), reading(engine) as connection:
            return schema_revision(connection, path), written_by(connection)
    finally:
        engine.dispose()


def written_by(connection: Connection) -> str | None:
    """The driftwatch version that last upgraded this database."""
    if not inspect(connection).has_table("meta"):
        return None
    version = connection.execute(
        text("SELECT value FROM meta WHERE name = :name"), {"name": "upgraded_by"}
    ).scalar()
    return None if version is None else str(version)


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
