"""A real VictoriaMetrics on the loopback that holds a recording's history.

What it does otherwise than Prometheus, and what these flags say of it: it answers from a cache
that rounds times to the step (``nocache`` in a query, or no cache at all), hides the newest half
minute (``-search.latencyOffset``), and guesses from the samples how far it may look back
(``-search.maxStalenessInterval`` makes it the fixed five minutes of Prometheus). And it drops what
a series has beyond 30 labels, which ``vllm:cache_config_info`` has (``-maxLabelsPerTimeseries``).
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import requests

from driftwatch.testing.exposition_server import Page
from driftwatch.testing.prometheus_server import _free_port, openmetrics_lines

NOT_INSTALLED = "victoria-metrics is not installed"

_READY_SECONDS = 30.0
_STOP_SECONDS = 10.0
_LINES_AT_ONCE = 50_000


def installed() -> bool:
    """Whether ``victoria-metrics`` can be started."""
    return shutil.which("victoria-metrics") is not None


class VictoriaMetricsServer:
    """Debian's single-node VictoriaMetrics in a temporary folder, from ``with`` to its end.

    Args:
        flags: beside those that make it keep old samples and listen here.
    """

    def __init__(self, flags: Sequence[str] = ()) -> None:
        self._flags = list(flags)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        binary = shutil.which("victoria-metrics")
        if binary is None:
            raise FileNotFoundError(NOT_INSTALLED)
        self._folder = tempfile.TemporaryDirectory(prefix="driftwatch-victoria-")
        folder = Path(self._folder.name)
        self._port = _free_port()
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the binary was looked up by name
                [
                    binary,
                    f"-storageDataPath={folder / 'data'}",
                    f"-httpListenAddr=127.0.0.1:{self._port}",
                    "-retentionPeriod=100y",
                    "-search.latencyOffset=0s",
                    "-search.disableCache",
                    "-maxLabelsPerTimeseries=60",
                    "-memory.allowedBytes=200MB",
                    "-loggerLevel=WARN",
                    *self._flags,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait_ready(folder / "log")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def hold(self, pages: Sequence[Page], labels: Mapping[str, str]) -> None:
        """Take in a recording: each page's samples at the page's own time.

        Args:
            pages: (unix seconds, page), None where the scrape failed (``up`` is 0 then).
            labels: what the scrape would add: ``job``, ``instance``.
        """
        lines: list[str] = []
        for at, body in pages:
            for line in openmetrics_lines(at, body, labels):
                series, _, when = line.rstrip().rpartition(" ")
                lines.append(f"{series} {round(float(when) * 1000)}\n")
            if len(lines) >= _LINES_AT_ONCE:
                self._take(lines)
                lines = []
        self._take(lines)
        requests.get(f"{self.url}/internal/force_flush", timeout=30).raise_for_status()

    def _take(self, lines: Sequence[str]) -> None:
        body = "".join(lines).encode()
        requests.post(
            f"{self.url}/api/v1/import/prometheus", data=body, timeout=60
        ).raise_for_status()

    def _wait_ready(self, log: Path) -> None:
        assert self._process is not None  # noqa: S101 - started by the caller
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"victoria-metrics ended: {log.read_text()[-2000:]}")
            try:
                if requests.get(f"{self.url}/health", timeout=2).ok:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"victoria-metrics was not ready in time: {log.read_text()[-2000:]}")

    def _stop(self) -> None:
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
