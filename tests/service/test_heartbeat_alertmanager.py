"""The alert that always fires, in a real Alertmanager: active while ticks complete, over after."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from fakes.alertmanager import BINARY, Alertmanager

from driftwatch.service.heartbeat import ALERT, MISSED, Watchdog

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(not BINARY, reason="Alertmanager is not installed"),
]
EVERY = timedelta(seconds=1)


def test_it_is_active_while_it_is_posted_and_ends_when_four_have_not_come() -> None:
    with Alertmanager() as server:
        watchdog = Watchdog(server.url, {"site": "b"})
        for _ in range(2):
            posted = datetime.now(UTC)
            watchdog.send(posted, EVERY)
            (alert,) = server.alerts()
            assert alert["labels"] == {"alertname": ALERT, "severity": "heartbeat", "site": "b"}
            assert alert["status"]["state"] == "active"
            ends = datetime.fromisoformat(alert["endsAt"])
            assert abs((ends - posted - MISSED * EVERY).total_seconds()) < 0.01
            time.sleep(0.2)
        assert len(server.alerts()) == 1
        deadline = time.monotonic() + 15
        while server.alerts():
            assert time.monotonic() < deadline, "it fires on"
            time.sleep(0.1)
        # not before it was to end
        assert datetime.now(UTC) >= posted + MISSED * EVERY - timedelta(seconds=0.1)
