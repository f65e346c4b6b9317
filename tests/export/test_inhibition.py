"""The inhibit rules, in a real Alertmanager."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
from ruamel.yaml import YAML

from driftwatch.export.alerts import alerts_of
from driftwatch.export.files import file_of
from driftwatch.rulebook.book import load_rulebook
from driftwatch.testing.daemon import Daemon

BINARIES = ("prometheus-alertmanager", "alertmanager")
BINARY = next((name for name in BINARIES if shutil.which(name)), "")

pytestmark = pytest.mark.skipif(not BINARY, reason="prometheus-alertmanager is not installed")


class Alertmanager(Daemon):
    """One that tells nobody."""

    def __init__(self, inhibit: str) -> None:
        super().__init__(BINARY, "/-/ready")
        self._inhibit = inhibit

    def arguments(self, folder: Path) -> Sequence[str]:
        inhibit = YAML(typ="safe").load(self._inhibit)
        config = {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}], **inhibit}
        with (folder / "config.yml").open("w", encoding="utf-8") as file:
            YAML(typ="safe").dump(config, file)
        return [
            f"--config.file={folder / 'config.yml'}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--cluster.listen-address=",
        ]

    def active(self, alerts: Sequence[Mapping[str, str]]) -> set[tuple[str, str]]:
        """Alert and server of those that nothing silences."""
        now = datetime.now(UTC).isoformat()
        body = [{"labels": dict(labels), "startsAt": now} for labels in alerts]
        answer = requests.post(f"{self.url}/api/v2/alerts", json=body, timeout=10)
        assert answer.ok, answer.text
        deadline = time.monotonic() + 10
        listed: list[dict[str, dict[str, str]]] = []
        while len(listed) < len(alerts) and time.monotonic() < deadline:
            listed = requests.get(f"{self.url}/api/v2/alerts", timeout=10).json()
        assert len(listed) == len(alerts)
        return {
            (alert["labels"]["alertname"], alert["labels"].get("instance", ""))
            for alert in listed
            if alert["status"]["state"] != "suppressed"
        }


def _shipped() -> str:
    text, _ = file_of("alertmanager", alerts_of(load_rulebook().rules))
    return text


@pytest.fixture
def alertmanager() -> Iterator[Alertmanager]:
    with Alertmanager(_shipped()) as running:
        yield running


def _alert(name: str, instance: str, severity: str = "page") -> dict[str, str]:
    where = {"pool": "rag", "instance": instance, "engine": "0"}
    return {"alertname": name, "severity": severity, **where}


def test_one_alert_of_a_server_is_left_and_other_servers_keep_theirs(
    alertmanager: Alertmanager,
) -> None:
    active = alertmanager.active(
        [
            _alert("GpuLost", "a:1"),
            _alert("EngineStuck", "a:1"),
            _alert("BatchLimitBinding", "a:1"),
            _alert("EngineStuck", "b:1"),
            _alert("LengthDrift", "b:1", "notice"),
            _alert("LengthDrift", "c:1", "notice"),
        ]
    )
    assert active == {("GpuLost", "a:1"), ("EngineStuck", "b:1"), ("LengthDrift", "c:1")}


def test_two_that_inhibit_each_other_are_not_both_silent(alertmanager: Alertmanager) -> None:
    names = ["BatchLimitBinding", "BatchDrift"]
    rules = {rule.alert: rule for rule in load_rulebook().rules}
    assert all(other in rules[one].inhibited_by for one, other in (names, names[::-1]))
    assert alertmanager.active([_alert(name, "a:1") for name in names]) == {("BatchDrift", "a:1")}
