"""What a libnvidia-ml.so answers that does what a test says."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

NOW = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)


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
