"""A real PostgreSQL on a Unix socket, in a folder of its own, for tests, benches and demos."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

NOT_INSTALLED = "PostgreSQL is not installed"
_USER = "driftwatch"
_START_SECONDS = 30.0
# speed, not safety: the folder is thrown away
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "autovacuum": "off",
    "listen_addresses": "",
    "logging_collector": "off",
}


def binaries() -> Path | None:
    """The folder of ``initdb`` and ``postgres``, the newest version's; None where there is none."""
    versions = sorted(
        (folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if _complete(folder)),
        key=lambda folder: int(folder.parent.name) if folder.parent.name.isdigit() else 0,
    )
    if versions:
        return versions[-1]
    on_path = shutil.which("postgres")
    folder = None if on_path is None else Path(on_path).resolve().parent
    return folder if folder is not None and _complete(folder) else None


def _complete(folder: Path) -> bool:
    return (folder / "initdb").is_file() and (folder / "postgres").is_file()


def installed() -> bool:
    return binaries() is not None


class PostgresServer:
    """A server in a temporary folder; a context manager.

    ``settings``: of postgresql.conf, over those of this module; ``tcp_port``: listen on
    127.0.0.1 as well, where passwords are asked for.
    """

    def __init__(self, settings: dict[str, str] | None = None, tcp_port: int | None = None) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        if tcp_port is not None:
            self._settings |= {"listen_addresses": "127.0.0.1", "port": str(tcp_port)}
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0

    def __enter__(self) -> Self:
        folder = Path(tempfile.mkdtemp(prefix="driftwatch-pg-"))
        self._folder = folder
        try:
            if os.geteuid() == 0:
                account = pwd.getpwnam("postgres")
                os.chown(folder, account.pw_uid, account.pw_gid)
            self._run("initdb", "-D", str(folder / "data"), "-U", _USER, "-E", "UTF8",
                      "--locale=C.UTF-8", "--auth-local=trust", "--auth-host=scram-sha-256",
                      "--no-sync")  # fmt: skip
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop("immediate")
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """Where it lies; its socket is in it.

        Raises RuntimeError: it was not entered.
        """
        if self._folder is None:
            raise RuntimeError("use it as a context manager")
        return self._folder

    @property
    def pid(self) -> int:
        """Of the server's first process.

        Raises RuntimeError: it does not run.
        """
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self._settings.get("port", "5432"))

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{_USER}@/{database}?host={self.folder}&port={self.port}"

    def start(self) -> None:
        """Start it, and wait until it takes connections.

        Raises RuntimeError: it does not within 30 s; with the end of its log.
        """
        log = (self.folder / "log").open("ab")
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        self._process = subprocess.Popen(
            self._command("postgres", "-D", str(self.folder / "data"), "-k", str(self.folder),
                          *options),
            stdout=log,
            stderr=log,
            start_new_session=True,  # a Ctrl-C at the terminal is not for it
        )  # fmt: skip
        log.close()
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                log_end = (self.folder / "log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"PostgreSQL did not start:\n{log_end}")
            time.sleep(0.02)

    def stop(self, how: str = "fast") -> None:
        """Stop it: ``smart`` waits for clients, ``fast`` ends them, ``immediate`` crashes."""
        if self._process is None:
            return
        signals = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        if self._process.poll() is None:
            os.kill(self._process.pid, signals[how])
        self._process.wait(30)
        self._process = None

    def query(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements outside of a transaction; the rows of the last one."""
        import psycopg

        with psycopg.connect(self._conninfo(database), autocommit=True) as connection:
            done = connection.execute(sql.encode())
            return done.fetchall() if done.description else []

    def new_database(self, template: str = "template0") -> str:
        self._count += 1
        name = f"driftwatch_{self._count}"
        self.query(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop_database(self, name: str) -> None:
        self.query(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _conninfo(self, database: str) -> str:
        return f"host={self.folder} port={self.port} user={_USER} dbname={database}"

    def _answers(self) -> bool:
        import psycopg

        try:
            self.query("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _command(self, program: str, *arguments: str) -> Sequence[str]:
        folder = binaries()
        if folder is None:
            raise FileNotFoundError(NOT_INSTALLED)
        # it ends with the thread that started it; and it refuses to run as root
        before = ["setpriv", "--pdeathsig=QUIT"]
        if os.geteuid() == 0:
            before += ["--reuid=postgres", "--regid=postgres", "--clear-groups"]
        return [*before, str(folder / program), *arguments]

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            self._command(program, *arguments), capture_output=True, text=True, check=False,
            cwd=self.folder,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr[-2000:]}")
