"""A real Alertmanager on the loopback, and what it posts to a webhook."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

from fakes.daemon import Daemon
from fakes.loopback import Answer, LoopbackServer, Request

# Debian's name, then its own
BINARY = next(filter(shutil.which, ("prometheus-alertmanager", "alertmanager")), "")

_SECONDS = 10.0


class Alertmanager(Daemon):
    """One of its own, without a cluster.

    ``webhook``: where it posts, None = nowhere; ``group_by``: labels that make a group; ``config``:
    parts of its configuration that go before the usual ones.
    """

    def __init__(
        self,
        webhook: str | None = None,
        group_by: Sequence[str] = ("...",),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(BINARY or "prometheus-alertmanager", "/-/ready")
        hooks = [] if webhook is None else [{"url": webhook, "send_resolved": True}]
        self._config = {
            "route": {
                "receiver": "hook",
                "group_by": list(group_by),
                "group_wait": "0s",
                "group_interval": "1s",
                "repeat_interval": "1h",
            },
            "receivers": [{"name": "hook", "webhook_configs": hooks}],
            **(config or {}),
        }

    def arguments(self, folder: Path) -> Sequence[str]:
        """Its command line; its configuration is JSON, which is YAML too."""
        (folder / "config.yml").write_text(json.dumps(self._config), encoding="utf-8")
        return [
            f"--config.file={folder / 'config.yml'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--cluster.listen-address=",
        ]

    def alerts(self) -> list[dict[str, Any]]:
        answer = requests.get(f"{self.url}/api/v2/alerts", timeout=_SECONDS)
        answer.raise_for_status()
        return list(answer.json())


class NotificationServer(LoopbackServer):
    """Takes what an Alertmanager posts to a webhook, at :attr:`address`.

    Attributes:
        notifications: in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.notifications: list[dict[str, Any]] = []

    def judge(self, request: Request) -> Answer:
        try:
            self.notifications.append(json.loads(request.body))
        except ValueError:
            return Answer(400, "not JSON")
        return Answer(200)

    def wait(self, count: int, seconds: float = _SECONDS) -> list[dict[str, Any]]:
        """The notifications, once there are so many. Raises TimeoutError: they do not come."""
        deadline = time.monotonic() + seconds
        while len(self.notifications) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.notifications)} of {count} notifications came")
            time.sleep(0.02)
        return self.notifications
