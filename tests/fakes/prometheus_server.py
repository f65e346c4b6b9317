"""A real Prometheus on the loopback, scraping, or holding a recording's history."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from fakes.daemon import Daemon
from fakes.exposition_server import Page

NOT_INSTALLED = "prometheus is not installed"


def installed() -> bool:
    return shutil.which("prometheus") is not None and shutil.which("promtool") is not None


def scrape_config(
    instances: Mapping[str, Sequence[str]], *, interval: str = "1s"
) -> dict[str, Any]:
    jobs = [
        {"job_name": job, "static_configs": [{"targets": list(targets)}]}
        for job, targets in instances.items()
    ]
    every = {"scrape_interval": interval, "scrape_timeout": interval}
    return {"global": every, "scrape_configs": jobs}


class PrometheusServer(Daemon):
    """Debian's Prometheus, scraping what it is told to, or serving ready blocks.

    ``config``: its configuration; ``{}`` scrapes nothing; ``blocks``: folder of ready TSDB blocks
    to serve (see :func:`backfill`); ``flags``: more of its own.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        blocks: Path | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        super().__init__("prometheus", "/-/ready")
        self._flags = flags
        self._config = dict(config or {})
        self._blocks = blocks

    def arguments(self, folder: Path) -> Sequence[str]:
        """Prometheus' flags; its configuration is JSON, which is YAML."""
        if self._blocks is not None:
            shutil.copytree(self._blocks, folder / "data")
        (folder / "prometheus.yml").write_text(json.dumps(self._config))
        return [
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            # recordings are of any age, and a block past the retention is deleted
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--log.level=warn",
            *self._flags,
        ]

    def query(self, text: str) -> list[dict[str, Any]]:
        """An instant query's result, for tests that wait for a scrape."""
        answer = requests.get(f"{self.url}/api/v1/query", params={"query": text}, timeout=10)
        answer.raise_for_status()
        result: list[dict[str, Any]] = answer.json()["data"]["result"]
        return result


def backfill(pages: Sequence[Page], labels: Mapping[str, str], into: Path) -> None:
    """Make TSDB blocks of a recording: each page's samples at the page's own time.

    ``pages``: (unix seconds, page), None where the scrape failed (``up`` is 0 then); ``labels``:
    what the scrape would add: ``job``, ``instance``; ``into``: folder for the blocks; made if it is
    not there. Raises RuntimeError: promtool refused the samples.
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
        process = subprocess.run(
            [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(into)],
            capture_output=True,
            text=True,
            check=False,
        )
    if process.returncode != 0:
        raise RuntimeError(f"promtool: {process.stderr[-2000:]}")


def openmetrics_lines(at: float, body: str | None, labels: Mapping[str, str]) -> list[str]:
    """One page as OpenMetrics sample lines with its time in ms, ``up`` among them."""
    when = f"{round(at * 1000) / 1000:.3f}"
    samples = [Sample("up", {}, 0.0 if body is None else 1.0)]
    for family in text_string_to_metric_families(body or ""):
        samples += family.samples
    return [
        f"{s.name}{_inside({**s.labels, **labels})} {_number(s.value)} {when}\n" for s in samples
    ]


def _number(value: float) -> str:
    text: str = floatToGoString(value)
    return text


def _inside(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
