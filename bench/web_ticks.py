"""Whether people who read pages delay the service: its ticks with and without readers of /fleet.

    python bench/web_ticks.py [--readers N] [--ticks N]

Runs the demo's recording through the service, with its database served by ``driftwatch web`` in a
process of its own; half of the ticks while readers each open /fleet every 5 seconds. Prints the
median and largest seconds of a tick, what it takes of the processor (what is more than that is
waiting: for the processor, or for the database), and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import timedelta
from importlib.resources import as_file, files
from pathlib import Path

from driftwatch.clock import ManualClock
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.run import Service
from driftwatch.store import Store

ROOT = Path(__file__).resolve().parents[1]
# reads the page until its standard input ends, and prints how many pages it got
_READERS = """
import sys, threading, urllib.request
address, count = sys.argv[1], int(sys.argv[2])
stop, pages = threading.Event(), [0] * count
def read(number):
    while not stop.is_set():
        try:
            urllib.request.urlopen(address, timeout=10).read()
            pages[number] += 1
        except OSError:
            pass
        stop.wait(5)
threads = [threading.Thread(target=read, args=(n,), daemon=True) for n in range(count)]
for one in threads: one.start()
sys.stdin.read()
stop.set()
print(sum(pages))
"""


def web_port(stack: ExitStack, database: Path) -> int:
    """Serve a database; where."""
    command = [sys.executable, "-m", "driftwatch", "web", "--db", str(database)]
    server = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"],
        cwd=database.parent,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    stack.callback(server.wait, 20)
    stack.callback(server.terminate)
    assert server.stderr is not None
    line = next(text for text in server.stderr if "serving" in text)
    return int(line.partition("http://127.0.0.1:")[2].partition("/")[0])


def ticked(service: Service, clock: ManualClock, ticks: int) -> tuple[list[float], list[float]]:
    """Seconds of each tick, and of the processor for each: both in order of length."""
    times, processor = [], []
    for _ in range(ticks):
        clock.advance(timedelta(seconds=15))
        began, busy = time.perf_counter(), time.process_time()
        service.tick_once()
        times.append(time.perf_counter() - began)
        processor.append(time.process_time() - busy)
    return sorted(times), sorted(processor)


def main() -> None:
    """Run, serve, read, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--ticks", type=int, default=40)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        recording = stack.enter_context(as_file(files("driftwatch") / "_demo" / "run_cap.jsonl.gz"))
        source = RecordingSource(recording)
        clock = ManualClock(source.span()[0])
        store = stack.enter_context(Store.open(folder / "service.db"))
        service = Service([source], plan_of_rules(()), store, [], clock)
        stack.callback(service.stop)
        ticked(service, clock, 20)  # what is made once is made
        address = f"http://127.0.0.1:{web_port(stack, folder / 'service.db')}/fleet"
        medians = []
        for readers in (0, options.readers):
            crowd = subprocess.Popen(
                [sys.executable, "-c", _READERS, address, str(readers)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            time.sleep(2)
            times, processor = ticked(service, clock, options.ticks)
            pages = crowd.communicate()[0].strip()
            medians.append(times[len(times) // 2])
            print(
                f"{readers} readers, {pages} pages read: median {medians[-1] * 1000:.1f} ms "
                f"a tick, processor {processor[len(processor) // 2] * 1000:.1f} ms, largest "
                f"{times[-1] * 1000:.1f} ms, {len(times)} ticks, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
        print(f"ratio of the medians: {medians[1] / medians[0]:.2f}")


if __name__ == "__main__":
    main()
