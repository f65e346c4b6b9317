"""The database that a command works on, and who acts on it."""

from __future__ import annotations

import getpass
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from driftwatch.database_place import Place, SqliteFile, place_of
from driftwatch.errors import ConfigError, NoVerdict, UsageError

if TYPE_CHECKING:
    from driftwatch.settings import Settings
    from driftwatch.store.people import IncidentStore
    from driftwatch.store.store import Store

DEFAULT_CONFIG = "driftwatch.yaml"
DEFAULT_DATABASE = Path("driftwatch.db")
DATABASE_VARIABLE = "DRIFTWATCH_DATABASE"


def config_here() -> Path | None:
    """``./driftwatch.yaml``; None where there is none."""
    path = Path(DEFAULT_CONFIG)
    return path if path.is_file() else None


def database_of(db: Place | None, config: Path | None) -> Place:
    """``--db``, ``DRIFTWATCH_DATABASE``, the configuration's, else ``driftwatch.db``.

    Another mistake in the configuration keeps nobody from acknowledging a page.

    Raises ConfigError: nothing of the configuration can be read; StoreError: the variable holds no
    database.
    """
    if db is not None:
        return db
    if config is not None:
        from driftwatch.settings import load_settings

        try:
            settings = load_settings(config)
        except ConfigError as error:
            readable = cast("Settings | None", error.readable)
            is_named = readable and "database" in readable.model_fields_set
            if readable is None or not (is_named or os.environ.get(DATABASE_VARIABLE)):
                raise
            settings = readable
        return settings.database_place  # the variable goes before what the file names
    place = place_of(os.environ.get(DATABASE_VARIABLE) or DEFAULT_DATABASE)
    return SqliteFile(place.path.expanduser()) if isinstance(place, SqliteFile) else place


def incident_store(db: Place | None, config: Path | None) -> IncidentStore:
    """What people read and change in an existing database of this version, without its minutes.

    Raises: as :func:`open_store`.
    """
    from driftwatch.store.people import IncidentStore

    return IncidentStore.open(database_of(db, config), migrate=False)


def open_store(db: Place | None, config: Path | None) -> Store:
    """Open an existing database of this version; never makes one.

    Raises StoreError: it is missing or does not serve.
    """
    from driftwatch.store.store import Store

    return Store.open(database_of(db, config), migrate=False)


def last_scraped(store: Store) -> datetime:
    """Time of the last_collected scrape in the store.

    Raises NoVerdict: it holds none.
    """
    from driftwatch.pipeline.stored_state import last_collected

    last = last_collected(store)
    if last is None:
        raise NoVerdict(
            "the store holds no scrape yet", help_text="driftwatch run -c driftwatch.yaml"
        )
    return last


def written(text: str, option: str) -> str:
    """Words from the command line that are kept.

    Raises UsageError: they are not UTF-8, which no database keeps.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{option} is not UTF-8 at its character {error.start + 1}",
            help_text="type it instead of pasting it, or convert it (iconv -t UTF-8)",
        ) from None
    return text


def person(name: str | None) -> str:
    """Who acts: ``--by``, else the user of this process.

    Raises UsageError: the name is empty, over 100 characters or not UTF-8, or the user has none.
    """
    if name is None:
        try:
            name = getpass.getuser()
        except (KeyError, OSError) as error:
            raise UsageError("this user has no name", help_text="say who: --by NAME") from error
    name = name.strip()
    if not name or len(name) > 100:
        raise UsageError("--by takes a name of 1 to 100 characters")
    return written(name, "--by")
