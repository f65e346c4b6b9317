"""Where a database is: a SQLite file, or PostgreSQL. Nothing here holds a password or shows one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from driftwatch.errors import StoreError

_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
_SECRET_PARAMETERS = ("password", "sslpassword")


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A SQLite file."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def typed(self) -> str:
        """As a person types it."""
        return str(self.path)


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """A PostgreSQL database; as text it is its host and name, without user or parameters."""

    # libpq's connection parameters: host, port, user, dbname, sslmode, ...
    parameters: tuple[tuple[str, str], ...]
    typed: str  # the URL as a person types it
    password_file: Path | None = None  # read at each connect; None = libpq's own ways

    def __str__(self) -> str:
        values = dict(self.parameters)
        host, port = values.get("host", ""), values.get("port", "")
        if host.startswith("/"):
            host = port = ""
        host = f"[{host}]" if ":" in host else host
        return f"postgresql://{host}{':' if port else ''}{port}/{values['dbname']}"


Place = SqliteFile | PostgresPlace


def place_of(text: str | Path | Place, password_file: Path | None = None) -> Place:
    """The place that a path or a URL means: ``sqlite:///FILE``, ``postgresql://USER@HOST/NAME``.

    Raises StoreError: ``unsupported``; it is no file, another kind of database, or not a URL.
    """
    if isinstance(text, SqliteFile | PostgresPlace):
        return text
    text = str(text)
    if text.startswith("sqlite:///"):
        text = text.removeprefix("sqlite:///")
    elif "://" in text:
        return _postgres(text, password_file)
    if not text or text == ":memory:":
        raise _unsupported(f"{text!r} is not a file: incidents have to outlive the process")
    return SqliteFile(Path(text))


def _postgres(text: str, password_file: Path | None) -> PostgresPlace:
    """Messages name parts of the URL and never the whole: a mistyped one may hold a password."""
    scheme = text.split("://", 1)[0]
    if scheme not in _SCHEMES:
        raise _unsupported(
            f"databases of kind {scheme[:20]!r} are not supported",
            "give the path of a SQLite file, or postgresql://USER@HOST/DATABASE",
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _unsupported("the database URL has no valid host or port", _FORM) from None
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.password is not None or any(name in query for name in _SECRET_PARAMETERS):
        raise _unsupported(
            "a database URL holds no password: ps and logs would show it",
            "put it in a file: database_password_file in the configuration, or PGPASSFILE",
        )
    standard = {
        "host": unquote(parts.hostname or ""),
        "port": "" if port is None else str(port),
        "user": unquote(parts.username or ""),
        "dbname": unquote(parts.path.removeprefix("/")),
    }
    parameters = {name: value for name, value in standard.items() if value} | query
    if not parameters.get("dbname"):
        raise _unsupported("the database URL names no database", _FORM)
    if any(not value.isprintable() for value in parameters.values()) or parts.fragment:
        raise _unsupported("the database URL holds a character that is not allowed", _FORM)
    return PostgresPlace(tuple(sorted(parameters.items())), text, password_file)


_FORM = "write it as postgresql://USER@HOST:5432/DATABASE?sslmode=verify-full"


def _unsupported(message: str, help_text: str | None = None) -> StoreError:
    return StoreError(
        message, code="unsupported", help_text=help_text or "give the path of a SQLite file"
    )
