"""The database a command works on, times and names on the command line."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    from driftwatch.store import Store

DEFAULT_CONFIG = "driftwatch.yaml"
DEFAULT_DATABASE = "driftwatch.db"
DATABASE_VARIABLE = "DRIFTWATCH_DATABASE"


def config_here() -> Path | None:
    """``./driftwatch.yaml``, None where there is none."""
    path = Path(DEFAULT_CONFIG)
    return path if path.is_file() else None


def database_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--db`` and ``-c/--config``, for a command that takes ``db`` and ``config``."""
    function = click.option(
        "-c",
        "--config",
        metavar="FILE",
        type=click.Path(),
        help=f"Configuration that names the database; default ./{DEFAULT_CONFIG}, if there.",
    )(function)
    return click.option(
        "--db",
        metavar="FILE",
        type=click.Path(),
        help=f"SQLite file; default {DATABASE_VARIABLE}, the configuration's, {DEFAULT_DATABASE}.",
    )(function)


def database_of(db: str | None, config: str | None) -> str:
    """Path of the database that a command works on.

    The first that says one: ``--db``, ``-c/--config``, ``DRIFTWATCH_DATABASE``,
    ``./driftwatch.yaml``, else ``driftwatch.db``. As for ``driftwatch run``, the environment goes
    before the ``database`` that a configuration file names.

    Raises ConfigError: the configuration has problems.
    """
    if db is not None:
        return db
    from_environment = os.environ.get(DATABASE_VARIABLE)
    if config is None and from_environment:
        return str(Path(from_environment).expanduser())
    path = config_here() if config is None else Path(config)
    if path is None:
        return DEFAULT_DATABASE
    from driftwatch.settings import load_settings

    return str(load_settings(path).database)


def open_store(db: str | None, config: str | None) -> Store:
    """Open an existing database of this version; never makes one.

    Raises StoreError: it is missing or does not serve.
    """
    from driftwatch.store import Store

    return Store.open(database_of(db, config), migrate=False)


def named_store(db: Path | None, config: Path | None) -> Store:
    """Open the store that ``--db`` or a named configuration says; both may be given.

    With both, the configuration brings the pools and ``--db`` the data. ``./driftwatch.yaml`` is
    no more than the default.

    Raises StoreError: it is missing or does not serve.
    """
    named = None if config is None or config == config_here() else str(config)
    return open_store(None if db is None else str(db), named)


def last_scraped(store: Store) -> datetime:
    """Time of the newest scrape in the store.

    Raises NoVerdict: it holds none.
    """
    from driftwatch.pipeline.stored_state import newest

    last = newest(store)
    if last is None:
        raise NoVerdict(
            "the store holds no scrape yet", help_text="driftwatch run -c driftwatch.yaml"
        )
    return last


def written(text: str, option: str) -> str:
    """Words from the command line that are kept: the text as it is.

    Raises UsageError: it is not UTF-8, which no database keeps.
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
    """Who acts: the name given, else the user this process runs as.

    Raises UsageError: the name is empty, over 100 characters or not UTF-8, or the user has no name.
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


def seconds_of(text: str, option: str) -> float:
    """A duration above zero from the command line.

    Raises UsageError: it is none.
    """
    from driftwatch.durations import parse_duration

    try:
        seconds = parse_duration(text.strip())
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if seconds <= 0:
        raise UsageError(f"{option}: a duration above zero is needed, not {text}")
    return seconds


def moment(text: str, now: datetime, option: str) -> datetime:
    """A time of the past: a duration before ``now`` (``24h``) or an ISO time (UTC unless it says).

    Raises UsageError: it is neither.
    """
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            return now - timedelta(seconds=seconds_of(text, option))
        except (UsageError, OverflowError) as error:
            raise UsageError(
                f"{option}: {text!r} is neither a duration nor a time",
                help_text="write 24h or 2026-01-31T14:05Z",
            ) from error
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def short_time(at: datetime, now: datetime) -> str:
    """A time as people read it: ``02:45 UTC``, with the date unless it is today."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    return at.strftime("%H:%M UTC" if at.date() == now.date() else "%Y-%m-%d %H:%M UTC")


def iso_time(at: datetime | None) -> str | None:
    """A time as machines read it: ``2026-01-31T14:05:00Z``."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
