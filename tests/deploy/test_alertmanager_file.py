"""Routes of the alerts on driftwatch itself, as amtool follows them."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from deploy_cases import DEPLOY, documents

FILE = DEPLOY / "prometheus" / "alertmanager.yml"

pytestmark = pytest.mark.skipif(
    shutil.which("amtool") is None, reason="prometheus-alertmanager is not installed"
)


def _amtool(*arguments: object) -> str:
    ran = subprocess.run(
        ["amtool", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.strip()


def test_amtool_takes_it() -> None:
    assert "SUCCESS" in _amtool("check-config", FILE)


@pytest.mark.parametrize(
    ("severity", "receiver"),
    [("heartbeat", "dead-mans-switch"), ("page", "oncall"), ("ticket", "tickets")],
)
def test_every_severity_has_its_receiver(severity: str, receiver: str) -> None:
    told = _amtool("config", "routes", "test", f"--config.file={FILE}", f"severity={severity}")
    assert told == receiver


def test_the_heartbeat_is_told_every_minute() -> None:
    (config,) = documents(FILE)
    (beat,) = [r for r in config["route"]["routes"] if r["receiver"] == "dead-mans-switch"]
    assert (beat["group_interval"], beat["repeat_interval"]) == ("1m", "1m")
    assert "inhibit_rules" not in config  # nothing may keep it quiet
