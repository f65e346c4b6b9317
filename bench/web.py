"""What every page costs on a large fleet: first byte, processor, bytes; and with stalled readers.

    python bench/web.py [--targets N] [--incidents N] [--readers N] [--repeats N]

Fills a SQLite store with a recorded server as many times, ten minutes and incidents of it, serves
it as ``driftwatch web`` does in a process of its own, and times the first byte of every page and of
its JSON, with the processor seconds that the process took; the first request of each apart. Then
some again while readers each have asked for a page and read nothing.
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
from pathlib import Path
from typing import NamedTuple

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "web"))

from large_fleet_cases import Size, paths_of, replicate  # noqa: E402
from recorded_cases import record_firing  # noqa: E402

from driftwatch.database_place import place_of  # noqa: E402
from driftwatch.service.configuration import plan_of_rules  # noqa: E402
from driftwatch.web.database import WebDatabase  # noqa: E402
from driftwatch.web.fleet_minutes import FleetMinutes  # noqa: E402

GOAL_SECONDS, GOAL_BYTES = 0.3, 300_000


def filled(folder: Path, size: Size) -> Path:
    """A store of that size."""
    recorded, path = record_firing(folder), folder / "fleet.db"
    replicate(recorded.path, recorded.incident_id, path, size, recorded.now)
    return path


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


class Cost(NamedTuple):
    """What a page costs."""

    first_seconds: float  # to the first byte, of the first request
    seconds: float  # the same, median of the others
    processor_seconds: float  # of the serving process, mean of the others
    size: int  # bytes


def processor_seconds(pid: int) -> float:
    """What a process has taken until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost_of(client: httpx.Client, path: str, pid: int, repeats: int) -> Cost:
    """Ask for a page, some times."""
    times, size, before = [], 0, 0.0
    for number in range(repeats + 1):
        if number == 1:
            before = processor_seconds(pid)
        began = time.perf_counter()
        with client.stream("GET", path) as answer:
            assert answer.status_code == 200, path
            parts = answer.iter_bytes()
            size = len(next(parts))
            times.append(time.perf_counter() - began)
            size += sum(map(len, parts))
    spent = (processor_seconds(pid) - before) / repeats
    return Cost(times[0], sorted(times[1:])[repeats // 2], spent, size)


def stalled(address: tuple[str, int]) -> socket.socket:
    """A reader that has asked for a page and reads nothing of it."""
    reader = socket.create_connection(address)
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    reader.sendall(b"GET /fleet?size=200 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return reader


def serve(stack: ExitStack, path: Path) -> tuple[int, int]:
    """Port and process of ``driftwatch web`` on a store."""
    server = subprocess.Popen(
        [sys.executable, "-m", "driftwatch", "web", "--db", str(path), "--listen", "127.0.0.1:0"],
        cwd=path.parent,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    stack.callback(server.wait, 20)
    stack.callback(server.terminate)
    assert server.stderr is not None
    line = next(text for text in server.stderr if "serving" in text)
    return int(line.partition("http://127.0.0.1:")[2].partition("/")[0]), server.pid


def main() -> None:
    """Fill, serve, time, print."""
    parser = argparse.ArgumentParser()
    usual = {"targets": 10_000, "incidents": 1_000, "readers": 100, "repeats": 7}
    for name, number in usual.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    arguments = parser.parse_args()
    size = Size(arguments.targets, arguments.incidents)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = filled(Path(folder), size)
        whole, again = refresh_seconds(path)
        print(f"newest minutes: {whole:.2f} s, nothing new {again * 1000:.1f} ms")
        port, pid = serve(stack, path)
        client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120))
        while not client.get("/fleet.json?size=1").json()["targets"]:
            time.sleep(1)
        time.sleep(whole + 6)  # the thread has read the fleet
        every = [one for one in paths_of(size) if "matchers" not in one]
        both = [each for one in every for each in (one, _json_path(one))]
        for readers, pages in ((0, both), (arguments.readers, every[:6])):
            for _ in range(readers):
                stack.enter_context(closing(stalled(("127.0.0.1", port))))
            for page in pages:
                cost = cost_of(client, page, pid, arguments.repeats)
                good = cost.seconds <= GOAL_SECONDS and cost.size <= GOAL_BYTES
                print(
                    f"{'ok' if good else 'OVER':4} {readers:3} stalled readers, {page}: first byte "
                    f"{cost.seconds:.3f} s (first request {cost.first_seconds:.3f}), processor "
                    f"{cost.processor_seconds:.3f} s, {cost.size:,} bytes, "
                    f"load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )


def _json_path(path: str) -> str:
    before, mark, query = path.partition("?")
    return f"{before}.json{mark}{query}"


if __name__ == "__main__":
    main()
