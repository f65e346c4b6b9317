"""A real Prometheus on the loopback, scraping, or holding a recording's history."""

from __future__ import annotations

import json
import math
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from driftwatch.testing.exposition_server import Page

NOT_INSTALLED = "prometheus is not installed"

_READY_SECONDS = 30.0
_STOP_SECONDS = 10.0


def installed() -> bool:
    """Whether ``prometheus`` and ``promtool`` can be started."""
    return shutil.which("prometheus") is not None and shutil.which("promtool") is not None


def scrape_config(
    instances: Mapping[str, Sequence[str]], *, interval: str = "1s"
) -> dict[str, Any]:
    """Job → ``host:port`` list, as a Prometheus configuration."""
    jobs = [
        {"job_name": job, "static_configs": [{"targets": list(targets)}]}
        for job, targets in instances.items()
    ]
    every = {"scrape_interval": interval, "scrape_timeout": interval}
    return {"global": every, "scrape_configs": jobs}


class PrometheusServer:
    """Debian's Prometheus in a temporary folder, from ``with`` to its end.

    Args:
        blocks: folder of ready TSDB blocks to serve (see :func:`backfill`).
    """

    def __init__(self, config: Mapping[str, Any] | None = None, blocks: Path | None = None) -> None:
        self._config = dict(config or {})
        self._blocks = blocks
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="driftwatch-prometheus-")
        folder = Path(self._folder.name)
        if self._blocks is not None:
            shutil.copytree(self._blocks, folder / "data")
        # JSON is YAML
        (folder / "prometheus.yml").write_text(json.dumps(self._config))
        self._port = _free_port()
        binary = shutil.which("prometheus")
        if binary is None:
            raise FileNotFoundError(NOT_INSTALLED)
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the binary was looked up by name
                [
                    binary,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    # recordings are of any age, and a block past the retention is deleted
                    "--storage.tsdb.retention.time=100y",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                    "--log.level=warn",
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

    def query(self, text: str) -> list[dict[str, Any]]:
        """An instant query's result, for tests that wait for a scrape."""
        answer = requests.get(f"{self.url}/api/v1/query", params={"query": text}, timeout=10)
        answer.raise_for_status()
        result: list[dict[str, Any]] = answer.json()["data"]["result"]
        return result

    def _wait_ready(self, log: Path) -> None:
        assert self._process is not None  # noqa: S101 - started by the caller
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"prometheus ended: {log.read_text()[-2000:]}")
            try:
                if requests.get(f"{self.url}/-/ready", timeout=2).ok:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"prometheus was not ready in time: {log.read_text()[-2000:]}")

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


def backfill(pages: Sequence[Page], labels: Mapping[str, str], into: Path) -> None:
    """Make TSDB blocks of a recording: each page's samples at the page's own time.

    Args:
        pages: (unix seconds, page), None where the scrape failed (``up`` is 0 then).
        labels: what the scrape would add: ``job``, ``instance``.
        into: folder for the blocks; made if it is not there.

    Raises:
        RuntimeError: promtool refused the samples.
    """
    promtool = shutil.which("promtool")
    if promtool is None:
        raise FileNotFoundError(NOT_INSTALLED)
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="driftwatch-backfill-") as folder:
        text = Path(folder) / "pages.om"
        with text.open("w", encoding="utf-8") as file:
            for at, body in pages:
                file.writelines(openmetrics_lines(at, body, labels))
            file.write("# EOF\n")
        made = subprocess.run(  # noqa: S603 - the binary was looked up by name
            [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(into)],
            capture_output=True,
            text=True,
            check=False,
        )
    if made.returncode != 0:
        raise RuntimeError(f"promtool: {made.stderr[-2000:]}")


def openmetrics_lines(at: float, body: str | None, labels: Mapping[str, str]) -> list[str]:
    """One page as OpenMetrics sample lines with its time in ms, ``up`` among them."""
    when = f"{round(at * 1000) / 1000:.3f}"
    samples = [Sample("up", {}, 0.0 if body is None else 1.0)]
    for family in text_string_to_metric_families(body or ""):
        samples += family.samples
    return [
        f"{s.name}{_inside({**s.labels, **labels})} {_number(s.value)} {when}\n" for s in samples
    ]


def _inside(labels: Mapping[str, str]) -> str:
    escaped = (
        (k, v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for k, v in labels.items()
    )
    return "{" + ",".join(f'{k}="{v}"' for k, v in escaped) + "}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(float(value)) if math.isfinite(value) else ("+Inf" if value > 0 else "-Inf")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
