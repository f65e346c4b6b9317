"""What pages cost on a large fleet: first byte, bytes, and readers that never read on.

    python bench/web.py [--targets N] [--incidents N] [--minutes N] [--readers N]

Fills a SQLite store with targets, their last minutes and open incidents, serves it as ``driftwatch
web`` does in a process of its own, and times the first byte of pages; then again while readers
each have asked for a page and read nothing. Prints the time that reading the newest minutes takes.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "web"))

from web_fleet_cases import fired, fleet_database  # noqa: E402

from driftwatch.database_place import place_of  # noqa: E402
from driftwatch.service.configuration import plan_of_rules  # noqa: E402
from driftwatch.web.database import WebDatabase  # noqa: E402
from driftwatch.web.fleet_minutes import FleetMinutes  # noqa: E402

GOAL_SECONDS, GOAL_BYTES = 0.3, 300_000
REPEATS = 15


def filled(path: Path, targets: int, incidents: int, minutes: int) -> str:
    """A store of that size; the id of one of its incidents."""
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    rows = [{"instance": f"vllm-{n:05}.prod.example.com:8000"} for n in range(targets)]
    every = [
        replace(fired("a", str(row["instance"])), id=f"{n:012x}", key=f"k{n}")
        for n, row in enumerate(rows[:incidents])
    ]
    for ago in reversed(range(minutes)):
        last = end - timedelta(minutes=ago)
        fleet_database(path, rows, every, end=last)
    return str(every[0].id)


def refresh_seconds(path: Path) -> tuple[float, float]:
    """How long the newest minutes take: all of them, and where nothing is new."""
    database, fleet = WebDatabase(place_of(path)), FleetMinutes(plan_of_rules(()))
    times = []
    for _ in range(2):
        began = time.perf_counter()
        fleet.refresh(database.reader())
        times.append(time.perf_counter() - began)
    database.close()
    return times[0], times[1]


def first_byte(client: httpx.Client, path: str) -> tuple[float, float, int]:
    """Median and largest time to the first byte, in seconds, and the page's bytes."""
    times, size = [], 0
    for _ in range(REPEATS):
        began = time.perf_counter()
        with client.stream("GET", path) as answer:
            assert answer.status_code == 200, path
            parts = answer.iter_bytes()
            size = len(next(parts))
            times.append(time.perf_counter() - began)
            size += sum(map(len, parts))
    return sorted(times)[REPEATS // 2], max(times), size


def stalled(address: tuple[str, int]) -> socket.socket:
    """A reader that has asked for a page and reads nothing of it."""
    reader = socket.create_connection(address)
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    reader.sendall(b"GET /fleet?size=200 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return reader


def main() -> None:
    """Fill, serve, time, print."""
    parser = argparse.ArgumentParser()
    for name, usual in (
        ("targets", 10_000),
        ("incidents", 1_000),
        ("minutes", 10),
        ("readers", 100),
    ):
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "fleet.db"
        one = filled(path, asked.targets, asked.incidents, asked.minutes)
        whole, again = refresh_seconds(path)
        print(f"newest minutes: {whole:.2f} s, nothing new {again * 1000:.1f} ms")
        command = [sys.executable, "-m", "driftwatch", "web", "--db", str(path)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        server = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"],
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        stack.callback(server.wait, 20)
        stack.callback(server.terminate)
        assert server.stderr is not None
        line = next(text for text in server.stderr if "serving" in text)
        port = int(line.partition("http://127.0.0.1:")[2].partition("/")[0])
        client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60))
        client.get("/fleet")
        time.sleep(whole + 6)  # the thread has read the fleet
        for readers in (0, asked.readers):
            for _ in range(readers):
                stack.enter_context(closing(stalled(("127.0.0.1", port))))
            for page in (
                "/fleet",
                "/fleet?size=200",
                "/fleet?sort=speed&q=prod",
                f"/incidents/{one}",
                client.get("/fleet.json?size=1").json()["rows"][0]["pool_path"],
                "/targets/vllm-00077.prod.example.com:8000",
            ):
                median, most, size = first_byte(client, page)
                good = median <= GOAL_SECONDS and size <= GOAL_BYTES
                verdict = "ok" if good else "OVER"
                print(
                    f"{verdict:4} {readers:3} stalled readers, {page}: first byte {median:.3f} s "
                    f"(largest {most:.3f}), {size:,} bytes"
                )


if __name__ == "__main__":
    main()
