"""A database's own binary in a temporary folder on the loopback, from ``with`` to its end."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import requests

_READY_SECONDS = 30.0
_STOP_SECONDS = 10.0


class Daemon:
    """One process that listens on a free port.

    ``binary``: looked up in PATH; ``ready``: path that answers 200 once it can be used.
    """

    def __init__(self, binary: str, ready: str) -> None:
        self._binary, self._ready = binary, ready
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def arguments(self, folder: Path) -> Sequence[str]:
        """Its command line; files that it needs are written into the folder first."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        binary = shutil.which(self._binary)
        if binary is None:
            raise FileNotFoundError(f"{self._binary} is not installed")
        self._folder = tempfile.TemporaryDirectory(prefix=f"driftwatch-{self._binary}-")
        folder = Path(self._folder.name)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [binary, *self.arguments(folder)], stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self._wait(self._process, folder / "log")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _wait(self, process: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise RuntimeError(f"{self._binary} ended: {log.read_text()[-2000:]}")
            try:
                if requests.get(f"{self.url}{self._ready}", timeout=2).ok:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"{self._binary} was not ready in time: {log.read_text()[-2000:]}")
