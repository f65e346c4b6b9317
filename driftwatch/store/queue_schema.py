"""The tables of procrastinate, beside driftwatch's own in the same schema of PostgreSQL.

They are its own business: its installed version brings them, ``meta`` has the name of its newest
migration that was run. Without it installed there are none, and no worker.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import Connection, text

from driftwatch.store.database import is_postgres
from driftwatch.store.tables import meta

_NAME = "procrastinate"
_THERE = text("SELECT to_regclass('procrastinate_jobs') IS NOT NULL")


def has_procrastinate() -> bool:
    """Whether it is installed."""
    return find_spec(_NAME) is not None


def is_queue_behind(connection: Connection) -> bool:
    """Whether the installed procrastinate needs other tables; never where it is not installed.

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
