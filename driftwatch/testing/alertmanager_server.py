"""A real Alertmanager on the loopback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

from driftwatch.testing.daemon import Daemon

BINARY = "prometheus-alertmanager"
NOT_INSTALLED = f"{BINARY} is not installed"


def installed() -> bool:
    """Whether Debian's Alertmanager can be started."""
    return shutil.which(BINARY) is not None


class AlertmanagerServer(Daemon):
    """Debian's Alertmanager, alone; ``config``: its configuration, by default nobody is told."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(BINARY, "/-/ready")
        self._config = config or {"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}

    def arguments(self, folder: Path) -> Sequence[str]:
        """Alertmanager's flags; its configuration is JSON, which is YAML."""
        (folder / "alertmanager.yml").write_text(json.dumps(self._config))
        return [
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--cluster.listen-address=",  # no other Alertmanager
            "--log.level=warn",
        ]

    def alerts(self) -> list[dict[str, Any]]:
        """Its active alerts."""
        answer = requests.get(f"{self.url}/api/v2/alerts", timeout=10)
        answer.raise_for_status()
        active: list[dict[str, Any]] = answer.json()
        return active
