"""A service on PostgreSQL whose server is restarted: it says so, and goes on."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from fakes.exposition_server import ReplayedExposition, read_pages
from fakes.postgres_server import NOT_INSTALLED, PostgresServer, installed

from driftwatch.database_place import place_of
from driftwatch.store.store import Store

pytestmark = pytest.mark.postgres
PASSWORD = "hunter2-canary"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One of its own, that is stopped and started."""
    if not installed():
        pytest.skip(NOT_INSTALLED)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with PostgresServer(tcp_port=port) as one:
        one.query(f"ALTER ROLE driftwatch PASSWORD '{PASSWORD}'")
        one.query("CREATE DATABASE driftwatch")
        yield one


def pages(folder: Path) -> list[tuple[float, str | None]]:
    return read_pages(folder / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz")


def test_the_process_says_so_and_goes_on_by_itself(
    server: PostgresServer, tmp_path: Path, shared_data: Path
) -> None:
    """And the password is in no log, no argument and no answer."""
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
    with ReplayedExposition(pages(shared_data)) as exposition:
        config = tmp_path / "driftwatch.yaml"
        config.write_text(
            f"sources: [{{pages: ['{exposition.url}/metrics']}}]\ninterval: 1s\n"
            f"database: postgresql://driftwatch@127.0.0.1:{server.port}/driftwatch\n"
            f"database_password_file: password\nlisten: {listen}\n"
        )
        log = tmp_path / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "driftwatch", "run", "-c", str(config)],
                stderr=file,
                stdout=file,
                env={**os.environ, "NO_COLOR": "1"},
            )
        try:
            _wait(lambda: _complete(listen) > 0, log)
            server.stop("fast")
            _wait(lambda: "tick failed" in log.read_text(), log)
            server.start()
            before = _complete(listen)
            _wait(lambda: _complete(listen) > before, log, 200)
            arguments = Path(f"/proc/{process.pid}/cmdline").read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    text = log.read_text()
    for written in (text, arguments):
        assert PASSWORD not in written
    with Store.open(
        place_of(
            f"postgresql://driftwatch@127.0.0.1:{server.port}/driftwatch", tmp_path / "password"
        ),
        migrate=False,
    ) as store:
        assert store.batches()[0].ticked_at is not None


def _complete(listen: str) -> float:
    """How many ticks are complete."""
    try:
        page = requests.get(f"http://{listen}/metrics", timeout=5).text
    except requests.RequestException:
        return 0.0
    match = re.search(r'^driftwatch_ticks_total{result="complete"} (\S+)', page, re.MULTILINE)
    return 0.0 if match is None else float(match.group(1))


def _wait(until: Callable[[], bool], log: Path, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)
