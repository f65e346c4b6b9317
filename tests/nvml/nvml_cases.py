"""What a libnvidia-ml.so answers that does what a test says."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from driftwatch.collect.nvml.source import NvmlSource
from driftwatch.collect.schema import Collected

NOW = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)

GIB = 2.0**30
BUSY = (
    "value utilization 0 96",
    "value memory_utilization 0 41",
    f"value total 0 {80 * 2**30}",
    f"value reserved 0 {2**29}",
    f"value free 0 {10 * 2**30}",
    "value sm_clock 0 1980",
    "value memory_clock 0 2619",
    "value power 0 402500",
    "value energy 0 123456789",
    "value temperature 0 61",
    "value clock_reasons 0 4",
)


class StandIn:
    """The library's answers, as ``nvml_stand_in.c`` reads them; said lines stay until dropped."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder  # holds libnvidia-ml.so.1
        self._lines: list[str] = []

    def say(self, *lines: str) -> None:
        self._lines += lines
        self._write()

    def drop(self, *lines: str) -> None:
        for line in lines:
            self._lines.remove(line)
        self._write()

    def environment(self) -> dict[str, str]:
        """For a child process, whose loader finds the library itself."""
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.folder),
            "NVML_STAND_IN": str(self.path),
        }

    def _write(self) -> None:
        whole = self.path.with_suffix(".new")
        whole.write_text("".join(f"{line}\n" for line in self._lines))
        whole.replace(self.path)  # a call never reads half of it


def collect(source: NvmlSource) -> Collected:
    return source.collect(NOW, NOW + timedelta(seconds=15))


def row(found: Collected, gpu: str = "0", instance: str | None = None) -> dict[str, Any]:
    rows = [
        r
        for r in found.gpus.iter_rows(named=True)
        if r["gpu"] == gpu and r["mig_instance"] == instance
    ]
    assert len(rows) == 1
    return rows[0]


def why(row: dict[str, Any], column: str) -> str | None:
    assert row[column] is None
    reason = json.loads(row["reasons"]).get(column)
    assert reason is None or isinstance(reason, str)
    return reason


def wait_until_back(source: NvmlSource) -> None:
    """Until the calls that hung have come back."""
    import time

    for _ in range(1000):
        if not source._library._hangs():
            return
        time.sleep(0.01)
    raise AssertionError("a call that was let go did not come back")
