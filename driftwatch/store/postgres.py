"""PostgreSQL as it has to be set up, and its failures in words.

Writers queue: each write transaction first takes one advisory lock of the schema, and reads what
the one before it committed (READ COMMITTED). That is what ``BEGIN IMMEDIATE`` does for SQLite, so
that what holds there holds here. Reading is one snapshot (REPEATABLE READ) and waits for nobody.
A writer that stops in the middle of its transaction loses its session, and its lock with it.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import TimeoutError as PoolTimeout

from driftwatch.database_place import PostgresPlace
from driftwatch.errors import ConfigError, StoreError

STATEMENT_SECONDS = 120
# A large fleet's tick packs its rows for some seconds between two statements.
WRITER_IDLE_SECONDS = 10
_READER_IDLE_SECONDS = 300
_CONNECT_SECONDS = 5
_POOL_SIZE, _POOL_EXTRA = 5, 10
READ_OPTIONS: dict[str, Any] = {
    "isolation_level": "REPEATABLE READ",
    "postgresql_readonly": True,
}
# of this program: what hashes to the schema's name keeps two of them in one database apart
_WRITER_LOCK = text(
    f"SELECT set_config('idle_in_transaction_session_timeout', '{WRITER_IDLE_SECONDS}s', true), "
    "pg_advisory_xact_lock(680011217, hashtext(current_schema()))"
)

# SQLSTATE, or its class → (code of the StoreError, what happened, what helps)
_FAILURES: dict[str, tuple[str, str, str | None]] = {
    "28": (
        "denied",
        "refused the login",
        "check user, password (PGPASSFILE or database_password_file) and pg_hba.conf; "
        "sslmode=require where it wants TLS",
    ),
    "3D000": ("missing", "is not there", "make it: CREATE DATABASE ... ENCODING 'UTF8'"),
    "42501": ("denied", "does not allow this", "give this user all rights on its tables"),
    "53300": (
        "busy",
        "has no connection left",
        "raise max_connections, or stop what holds connections",
    ),
    "53": (
        "full",
        "is out of memory or disk space",
        "free space; nothing of this transaction was kept, everything before it was",
    ),
    "25006": ("read-only", "is read-only: a standby", "give the address of the primary"),
    "55P03": ("locked", "is locked by another writer", "try again; see pg_locks if it stays so"),
    "57014": ("timeout", f"took longer than {STATEMENT_SECONDS} s", "see pg_stat_activity"),
    "57": ("unreachable", "is stopping or restarting", "driftwatch goes on when it is back"),
    "25P03": ("timeout", f"ended a transaction that stood for {WRITER_IDLE_SECONDS} s", None),
    "40": ("conflict", "took the transaction back: it met another one", "try again"),
    "08": ("unreachable", "lost the connection", "driftwatch goes on when it is back"),
    "XX001": ("corrupt", "is corrupt", "restore a backup"),
    "TLS": ("denied", "offers no TLS", "switch ssl on there, or take sslmode out of the URL"),
}
# libpq gives no SQLSTATE for what happens before the login, a standby one of many meanings
_BY_WORDS: tuple[tuple[str, str], ...] = (
    (r"does not support SSL", "TLS"),
    (r"password authentication failed|no password supplied|no pg_hba\.conf|role .* does not", "28"),
    (r"authentication failed|is not permitted to log in|requires SSL|certificate", "28"),
    (r"database .* does not exist", "3D000"),
    (r"too many (clients|connections)|remaining connection slots", "53300"),
    (r"starting up|shutting down|in recovery mode", "57"),
    (r"during recovery", "25006"),
)


def connect_arguments(place: PostgresPlace, busy_seconds: float) -> dict[str, Any]:
    """Parameters of libpq for a connection, without the password of a file."""
    options = {
        "statement_timeout": f"{STATEMENT_SECONDS}s",
        "lock_timeout": f"{max(round(busy_seconds * 1000), 1)}ms",
        "idle_in_transaction_session_timeout": f"{_READER_IDLE_SECONDS}s",
        "timezone": "UTC",
        "default_transaction_isolation": "read\\ committed",
        "synchronous_commit": "on",  # a committed page survives a power cut
    }
    parameters = dict(place.parameters)
    settings = " ".join(f"-c {name}={value}" for name, value in options.items())
    return {
        "connect_timeout": str(_CONNECT_SECONDS),
        "application_name": "driftwatch",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "20000",
        "client_encoding": "utf8",
        **parameters,
        "options": f"{settings} {parameters.get('options', '')}".strip(),
    }


def postgres_engine(place: PostgresPlace, busy_seconds: float) -> Engine:
    """An engine for one database; connects to nothing yet.

    Raises StoreError: ``unsupported`` where the driver is not installed.
    """
    try:
        engine = create_engine(
            "postgresql+psycopg://",
            connect_args=connect_arguments(place, busy_seconds),
            pool_size=_POOL_SIZE,
            max_overflow=_POOL_EXTRA,
            pool_timeout=busy_seconds,
            pool_pre_ping=True,
            pool_use_lifo=True,
            hide_parameters=True,
        )
    except ModuleNotFoundError as error:
        raise StoreError(
            "the driver for PostgreSQL is not installed",
            code="unsupported",
            help_text="pip install 'vllm-driftwatch[postgres]'",
        ) from error

    @event.listens_for(engine, "do_connect")
    def _with_password(_dialect: object, _record: object, _args: object, parameters: Any) -> None:
        if place.password_file is not None:
            parameters["password"] = read_password(place)

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: object) -> None:
        _keep_nul_out(connection)

    return engine


def _keep_nul_out(connection: Any) -> None:
    """A text from outside may hold NUL, which PostgreSQL cannot: U+FFFD stands for it."""
    from psycopg.types.string import StrDumper

    class Dumper(StrDumper):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\ufffd"))

    connection.adapters.register_dumper(str, Dumper)


def read_password(place: PostgresPlace) -> str:
    """Of its file, read at each connect, so that a new password needs no restart."""
    from driftwatch.settings.values import read_of

    try:
        return read_of(None, place.password_file) or ""
    except ConfigError as error:
        problem = error.problems[0]
        raise StoreError(
            f"the password file {problem.path} of database {place} cannot be used: "
            + problem.message.rpartition("cannot be used: ")[2],
            code="denied",
            help_text="database_password_file is a file with the password on its only line",
        ) from None


def take_writer_lock(connection: Connection) -> None:
    """Wait for the writer before; held until the transaction ends."""
    connection.execute(_WRITER_LOCK)


def postgres_failure(place: PostgresPlace, error: BaseException | None) -> StoreError:
    """A failure of PostgreSQL in words; of its own message only the first line, without details.

    ``error``: the driver's, or the pool's time-out.
    """
    if isinstance(error, PoolTimeout):
        words = "kept every connection of this process busy"
        return StoreError(f"database {place} {words}", code="busy", help_text="try again")
    message = str(error).strip()
    state = getattr(error, "sqlstate", None)
    if state in (None, "0A000"):
        state = next((s for p, s in _BY_WORDS if re.search(p, message, re.IGNORECASE)), None)
    for key in (state or "", (state or "")[:2]):
        if key in _FAILURES:
            code, words, help_text = _FAILURES[key]
            return StoreError(f"database {place} {words}", code=code, help_text=help_text)
    first = message.splitlines()[0] if message else type(error).__name__
    if state is None and type(error).__name__ in ("OperationalError", "ConnectionTimeout"):
        return StoreError(
            f"database {place} does not answer: {_reason(message)}",
            code="unreachable",
            help_text="check host, port and network; is PostgreSQL running?",
        )
    return StoreError(
        f"database {place}: {first}",
        code="unusable",
        help_text="check the parameters of its URL, and the log of PostgreSQL",
    )


def _reason(message: str) -> str:
    """Why no connection came about, in the last words of libpq's answer."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    failed = next((line for line in lines if "failed: " in line), lines[0] if lines else "")
    return failed.rpartition("failed: ")[2] or "no reason given"
