"""`driftwatch run` beside a real Prometheus, signalled and edited while incidents fire."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from fakes.prometheus_server import PrometheusServer
from fakes.webhook_server import WebhookServer

from driftwatch.notify.page import Page

RULE = """\
      - alert: {alert}
        when: waiting_requests >= 5
        severity: ticket
        keep_firing_for: 1h
"""


@pytest.fixture
def webhook() -> Iterator[WebhookServer]:
    with WebhookServer(Page.model_json_schema()) as server:
        yield server


def write(folder: Path, *alerts: str) -> None:
    """The rule file, put in place in one step."""
    text = "groups:\n  - name: own\n    rules:\n" + "".join(RULE.format(alert=a) for a in alerts)
    (folder / "new").write_text(text)
    (folder / "new").rename(folder / "own.yaml")


def test_a_running_service_takes_good_rules_and_refuses_bad_ones(
    blocks: Path, webhook: WebhookServer, tmp_path: Path
) -> None:
    write(tmp_path, "Stays", "Goes")
    with PrometheusServer(blocks=blocks) as server:
        (tmp_path / "driftwatch.yaml").write_text(
            f"sources: [{{prometheus: '{server.url}', match: {{job: vllm}}}}]\n"
            "interval: 1s\nlisten: 127.0.0.1:0\nrules: [own.yaml]\n"
            f"receivers: [{{name: hook, webhook: {{url: '{webhook.url}'}}}}]\n"
        )
        with (tmp_path / "log").open("w") as log:
            service = subprocess.Popen(
                [sys.executable, "-m", "driftwatch", "run"],
                stderr=log,
                cwd=tmp_path,
                env={**os.environ, "NO_COLOR": "1"},
            )
        try:
            _follow(service, webhook, tmp_path)
            service.send_signal(signal.SIGTERM)
            assert service.wait(timeout=60) == 0
        finally:
            service.kill()
            service.wait()


def _follow(service: subprocess.Popen[bytes], webhook: WebhookServer, folder: Path) -> None:
    def log() -> str:
        return (folder / "log").read_text()

    def until(true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not true():
            assert service.poll() is None, log()
            assert time.monotonic() < deadline, log()
            time.sleep(0.2)

    def own(name: str) -> float:
        url = log().partition("metrics=")[2].split()[0]
        lines = requests.get(url, timeout=5).text.splitlines()
        (value,) = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
        return float(value)

    until(lambda: len(webhook.accepted) == 2)
    assert own("driftwatch_config_last_reload_successful") == 1
    began = own("driftwatch_config_last_reload_success_timestamp_seconds")

    # of a file that cannot be read nothing is taken, and the service says where
    write(folder, "Stays", "Bad name")
    service.send_signal(signal.SIGHUP)
    until(lambda: "what is in force stays" in log())
    assert "where=own.yaml:8:16 code=value" in log()
    assert own("driftwatch_config_last_reload_successful") == 0
    assert own("driftwatch_config_last_reload_success_timestamp_seconds") == began

    write(folder, "Stays", "Comes")
    service.send_signal(signal.SIGHUP)
    until(lambda: len(webhook.accepted) == 3)
    gone = webhook.accepted[2]
    assert (gone["alert"], gone["event"]) == ("Goes", "resolved")
    assert gone["resolved_reason"] == "the rule was removed"
    assert own("driftwatch_config_last_reload_successful") == 1
    assert own("driftwatch_config_last_reload_success_timestamp_seconds") > began
    assert "event=reloaded rules=2" in log()
    assert own('driftwatch_incidents_open{severity="ticket",state="firing"}') == 1
