"""A real VictoriaMetrics on the loopback that holds a recording's history.

What it does otherwise than Prometheus, and what these flags say of it: it answers from a cache
that rounds times to the step (``nocache`` in a query, or no cache at all), hides the newest half
minute (``-search.latencyOffset``), and guesses from the samples how far it may look back
(``-search.maxStalenessInterval`` makes it the fixed five minutes of Prometheus). And it drops what
a series has beyond 30 labels, which ``vllm:cache_config_info`` has (``-maxLabelsPerTimeseries``).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import requests

from fakes.daemon import Daemon
from fakes.exposition_server import Page
from fakes.prometheus_server import openmetrics_lines

NOT_INSTALLED = "victoria-metrics is not installed"

_LINES_AT_ONCE = 50_000


def installed() -> bool:
    return shutil.which("victoria-metrics") is not None


class VictoriaMetricsServer(Daemon):
    """Debian's single-node VictoriaMetrics.

    ``flags``: beside those that make it keep old samples and listen here.
    """

    def __init__(self, flags: Sequence[str] = ()) -> None:
        super().__init__("victoria-metrics", "/health")
        self._flags = list(flags)

    def arguments(self, folder: Path) -> Sequence[str]:
        return [
            f"-storageDataPath={folder / 'data'}",
            f"-httpListenAddr={self.url.removeprefix('http://')}",
            "-retentionPeriod=100y",
            "-search.latencyOffset=0s",
            "-search.disableCache",
            "-maxLabelsPerTimeseries=60",
            "-memory.allowedBytes=200MB",
            "-loggerLevel=WARN",
            *self._flags,
        ]

    def hold(self, pages: Sequence[Page], labels: Mapping[str, str]) -> None:
        """Take in a recording: each page's samples at the page's own time.

        ``pages``: (unix seconds, page), None where the scrape failed (``up`` is 0 then);
        ``labels``: what the scrape would add: ``job``, ``instance``.
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
