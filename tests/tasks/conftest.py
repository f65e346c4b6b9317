"""Workers on a real PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_process import Begin

from driftwatch.store.store import Store

SCRIPT = Path(__file__).with_name("worker_process.py")


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    with Store.open(postgres_url) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where tasks tell what they do."""
    made = tmp_path / "told"
    made.mkdir()
    return made


@pytest.fixture
def begin(postgres_url: str, folder: Path) -> Iterator[Begin]:
    """Starts a worker; all of them are killed at the end."""
    workers: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        with (folder / f"log-{len(workers)}").open("w") as log:
            command = [sys.executable, str(SCRIPT), postgres_url, str(folder)]
            workers.append(subprocess.Popen(command, stderr=log))
        return workers[-1]

    yield start
    for one in workers:
        one.kill()
        one.wait()
