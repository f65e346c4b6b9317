"""Real `driftwatch run` processes, and waiting for what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import requests

# a host whose wall clock is so many seconds ahead as a file says
_OTHER_CLOCK = """\
import sys
from datetime import timedelta
from pathlib import Path
from driftwatch.clock import SystemClock
true, ahead = SystemClock.now, Path(sys.argv.pop(1))
SystemClock.now = lambda self: true(self) + timedelta(seconds=float(ahead.read_text()))
from driftwatch.service import fleet
fleet.DatabaseClock.look = lambda self: None
from driftwatch.cli.main import main
main()
"""
# a process on PostgreSQL whose minutes last two seconds
_SHORT_MINUTES = """\
from functools import partial
from driftwatch.service import fleet
crons = {"minute": "* * * * * */2", "sweep": "* * * * * */1"}
fleet.Fleet = partial(fleet.Fleet, crons=crons, heartbeat_seconds=1.0)
"""


class Process:
    """One `driftwatch run`; killed at the end of ``with``, however it stands."""

    def __init__(
        self,
        folder: Path,
        name: str,
        database: str,
        clock_ahead: float = 0.0,
    ) -> None:
        self.log_file, self._ahead = folder / f"{name}.log", folder / f"{name}.ahead"
        command = ["-c", _SHORT_MINUTES + "from driftwatch.cli.main import main\nmain()"]
        if clock_ahead:
            self.set_clock(clock_ahead)
            command = ["-c", _SHORT_MINUTES + _OTHER_CLOCK, str(self._ahead)]
        environment = {**os.environ, "NO_COLOR": "1", "DRIFTWATCH_DATABASE": database}
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command, "run"], stderr=log, cwd=folder, env=environment
            )

    def set_clock(self, ahead_seconds: float) -> None:
        """Its wall clock is so far ahead from now on; for one that began with such a clock."""
        new = self._ahead.with_suffix(".new")
        new.write_text(repr(ahead_seconds))
        new.rename(self._ahead)

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def page(self, path: str) -> tuple[int, str]:
        base = self.log.partition("metrics=")[2].split("/metrics")[0]
        answer = requests.get(f"{base}{path}", timeout=5)
        return answer.status_code, answer.text

    def own(self, name: str) -> float | None:
        """A metric of its own; None where it serves none, or does not answer."""
        with suppress(requests.RequestException):
            for line in self.page("/metrics")[1].splitlines():
                if line.startswith(f"{name} "):
                    return float(line.split()[1])
        return None

    @property
    def ticks(self) -> float:
        return self.own('driftwatch_ticks_total{result="complete"}') or 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()


def until(true: Callable[[], object], seconds: float, *processes: Process) -> float:
    """Wait until it is; says how long it took, in seconds."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > seconds:
            logs = "\n".join(f"--- {one.log_file.name}\n{one.log[-4000:]}" for one in processes)
            raise AssertionError(f"not within {seconds} s\n{logs}")
        time.sleep(0.05)
    return time.monotonic() - began
