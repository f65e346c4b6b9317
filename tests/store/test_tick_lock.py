"""One ticking process per database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from store_cases import committer, pending

from driftwatch.errors import StoreError
from driftwatch.store.sqlite import lock_path
from driftwatch.store.store import Store


@pytest.fixture
def database(path: Path) -> str:
    """On PostgreSQL any number of processes may."""
    return str(path)


HOLDER = """
import sys
from driftwatch.store.store import Store
with Store.open(sys.argv[1]) as store, store.tick_lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_told_who_holds_it_and_goes_on_when_that_is_killed(
    store: Store, path: Path
) -> None:
    with hold(path) as other:
        with pytest.raises(StoreError) as caught, store.tick_lock():
            pass
        assert caught.value.code == "in-use"
        assert f"process {other.pid}" in caught.value.message
        # commands work beside it
        committer(store)(pending())
        assert store.open_incidents()
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
    with store.tick_lock():
        assert lock_path(path).read_text() == f"{os.getpid()}\n"
