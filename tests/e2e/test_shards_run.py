"""Two ``driftwatch run`` share a fleet; one is killed, and the other one has all of it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from driftwatch.testing.exposition_server import ReplayedExposition, read_pages

POOLS, SHARDS = 4, 8
INTERVAL_SECONDS = 5.0  # a lease is no shorter
RUN = "from driftwatch.cli.main import main; main()"
OTHER_CLOCK = """
from datetime import timedelta
from driftwatch.clock import SystemClock
right = SystemClock.now
SystemClock.now = lambda self: right(self) + timedelta(seconds={seconds})
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Fleet:
    """Recorded servers, a database, and the processes that share them."""

    def __init__(self, folder: Path, url: str, pages: list[str]) -> None:
        self.folder, self.url = folder, url
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.ports: dict[str, int] = {}
        self._pages = pages

    def start(self, name: str, clock_seconds: float = 0.0, **more: Any) -> subprocess.Popen[str]:
        """One more process; ``clock_seconds``: how far its clock is ahead."""
        self.ports[name] = free_port()
        sources = [
            {"pages": [url], "labels": {"instance": f"pool-{n}:8000", "namespace": f"pool-{n}"}}
            for n, url in enumerate(self._pages)
        ]
        document = {
            "sources": sources,
            "database": self.url,
            "interval": f"{INTERVAL_SECONDS:g}s",
            "listen": f"127.0.0.1:{self.ports[name]}",
            "shards": SHARDS,
            **more,
        }
        config = self.folder / f"{name}.yaml"
        config.write_text(json.dumps(document))
        program = RUN if not clock_seconds else OTHER_CLOCK.format(seconds=clock_seconds) + RUN
        self.running[name] = subprocess.Popen(
            [sys.executable, "-c", program, "run", "-c", str(config), "--name", name],
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.running[name]

    def shards(self) -> dict[int, str | None]:
        """Shard → who watches it, as ``driftwatch shards --json`` has it."""
        ran = subprocess.run(
            [sys.executable, "-c", RUN, "shards", "--db", self.url, "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        if not ran.stdout:
            return {}
        return {row["shard"]: row["process"] for row in json.loads(ran.stdout)["shards"]}

    def value(self, name: str, metric: str) -> float | None:
        """A metric of one of them."""
        for line in self.page(name, "/metrics").splitlines():
            if line.startswith(f"{metric} "):
                return float(line.split()[1])
        return None

    def targets(self, name: str) -> float | None:
        """How many targets one of them watches, as its own metrics have it."""
        return self.value(name, "driftwatch_targets")

    def page(self, name: str, path: str) -> str:
        """A page of one of them; nothing where it does not answer."""
        with suppress(requests.RequestException):
            return requests.get(f"http://127.0.0.1:{self.ports[name]}{path}", timeout=2).text
        return ""

    def close(self) -> None:
        for one in self.running.values():
            one.kill()
            one.communicate()


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str, shared_data: Path) -> Iterator[Fleet]:
    recorded = read_pages(shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz")
    begin, first = time.time(), recorded[0][0]
    with ExitStack() as stack:
        pages = [
            stack.enter_context(
                ReplayedExposition(recorded, clock=lambda: time.time() - begin + first)
            ).url
            for _ in range(POOLS)
        ]
        one = Fleet(tmp_path, postgres_url, pages)
        stack.callback(one.close)
        yield one


def waited(what: Callable[[], bool], seconds: float) -> float:
    """How long it took; fails where it takes longer."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < seconds
        time.sleep(0.2)
    return time.monotonic() - began


def test_a_killed_process_hands_its_shards_over(fleet: Fleet) -> None:
    fleet.start("a")
    waited(lambda: set(fleet.shards().values()) == {"a"}, 60)
    waited(lambda: fleet.targets("a") == POOLS, 60)
    fleet.start("b")
    waited(lambda: set(fleet.shards().values()) == {"a", "b"}, 60)
    waited(lambda: (fleet.targets("a") or 0) + (fleet.targets("b") or 0) == POOLS, 60)
    kept = {shard for shard, name in fleet.shards().items() if name == "a"}
    assert 0 < len(kept) < SHARDS
    # the one that leads: its part goes over too
    fleet.running["a"].send_signal(signal.SIGKILL)
    waited(lambda: set(fleet.shards().values()) == {"b"}, 60)
    waited(lambda: fleet.targets("b") == POOLS, 60)
    page = requests.get(f"http://127.0.0.1:{fleet.ports['b']}/metrics", timeout=5).text
    assert f"driftwatch_shards {SHARDS:.1f}" in page
    assert "driftwatch_leader 1.0" in page
    fleet.running["b"].send_signal(signal.SIGTERM)
    assert fleet.running["b"].wait(30) == 0
    assert set(fleet.shards().values()) == {None}


def test_what_does_not_fit_is_refused(fleet: Fleet) -> None:
    fleet.start("a")
    waited(lambda: set(fleet.shards().values()) == {"a"}, 60)
    for name, more, said in (
        ("a", {}, "another driftwatch run is called a"),
        ("c", {"shards": 4}, "deals pools to 8 shards, the configuration has 4"),
        ("d", {"shards": 1}, "deals pools to 8 shards, the configuration has 1"),
    ):
        first = fleet.running.pop("a")
        other = fleet.start(name, **more)
        _, words = other.communicate(timeout=60)
        assert said in words
        assert other.returncode != 0
        fleet.running = {"a": first}


def test_a_process_whose_clock_is_wrong_neither_watches_nor_leads(fleet: Fleet) -> None:
    fleet.start("late", clock_seconds=-300.0)
    waited(lambda: "its clock is 300 s behind" in fleet.page("late", "/-/ready"), 60)
    fleet.start("right")
    waited(lambda: fleet.value("right", "driftwatch_leader") == 1.0, 60)
    waited(lambda: fleet.targets("right") == POOLS, 60)
    assert fleet.value("late", "driftwatch_leader") == 0.0
    assert set(fleet.shards().values()) == {"right"}
