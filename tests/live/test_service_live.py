"""`driftwatch run` beside a real Prometheus; Slack and a webhook that refuse what is wrong.

Prometheus holds a past in which a cap has bound for long enough: the process finds it at its first
tick.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from fakes.exposition_server import Page, ReplayedExposition, read_pages
from fakes.prometheus_server import PrometheusServer, scrape_config
from fakes.slack_server import SlackServer
from fakes.webhook_server import WebhookServer

from driftwatch.notify.page import Page as IncidentPage

DRIFTWATCH = [sys.executable, "-m", "driftwatch"]


@pytest.fixture
def recorded(shared_data: Path) -> list[Page]:
    return read_pages(shared_data / "vllm-0.32/run_cap/scrapes.jsonl.gz")


@pytest.fixture
def slack() -> Iterator[SlackServer]:
    with SlackServer() as server:
        yield server


@pytest.fixture
def webhook() -> Iterator[WebhookServer]:
    schema = IncidentPage.model_json_schema()
    with WebhookServer(schema) as server:
        yield server


def _config(
    folder: Path, source: str, slack: SlackServer, webhook: WebhookServer, pools: str = ""
) -> Path:
    (folder / "slack.url").write_text(slack.url)
    config = folder / "driftwatch.yaml"
    config.write_text(
        f"sources: [{{{source}}}]\n"
        "interval: 1s\n"
        "listen: 127.0.0.1:0\n"
        f"{pools}"
        "receivers:\n"
        "  - {name: oncall, slack: {webhook_url_file: slack.url}}\n"
        f"  - {{name: hook, webhook: {{url: '{webhook.url}'}}}}\n"
    )
    return config


def test_a_page_from_the_past_that_prometheus_holds(
    blocks: Path, slack: SlackServer, webhook: WebhookServer, tmp_path: Path
) -> None:
    with PrometheusServer(blocks=blocks) as server:
        config = _config(
            tmp_path, f"prometheus: '{server.url}', match: {{job: vllm}}", slack, webhook
        )
        with _service(config, tmp_path) as service:
            _until(lambda: bool(webhook.accepted and slack.accepted), 120, service)
    pages = webhook.accepted
    assert [(p["event"], p["alert"]) for p in pages] == [("firing", "BatchLimitBinding")]
    assert pages[0]["servers"]["first"] == ["gpu-7:8000"]
    assert pages[0]["diagnosis"]["leaf"] == "concurrency_cap_binding"
    assert pages[0]["advice"]["moves"][0]["from_value"] == 8
    assert [m.payload["text"] for m in slack.accepted] == [f"🔴 {pages[0]['summary']}"]
    assert slack.accepted[0].mentions == ()
    listed = subprocess.run(
        [*DRIFTWATCH, "incidents", "--json", "-c", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=True,
    )
    assert "BatchLimitBinding" in listed.stdout
    assert slack.url not in (tmp_path / "log").read_text() + listed.stdout


def test_run_watches_a_prometheus_that_scrapes(
    recorded: list[Page],
    real_prometheus: None,
    slack: SlackServer,
    webhook: WebhookServer,
    tmp_path: Path,
) -> None:
    """Prometheus scrapes a replayed server every second while the service ticks beside it.

    The pool says it was tuned for prompts of 30 tokens; they are 128, and a rule of the operator's
    own says so in the first whole minute with enough finished requests. Then the service
    is told to stop.
    """
    # six minutes of heavy traffic in one: enough finished requests for a comparison
    heavy = [page for page in recorded if page[0] > recorded[0][0] + 240]
    pools = "pools:\n  - {name: chat, match: {job: vllm}, tuned_for: {prompt_tokens: 30}}\n"
    (tmp_path / "own.yaml").write_text(
        "groups:\n  - name: own\n    rules:\n      - alert: PromptsAreOthers\n"
        "        severity: ticket\n        when: prompt_tokens_mean_ratio >= 1.5\n"
    )
    pools += "rules: [own.yaml]\n"
    with (
        ReplayedExposition(heavy, speed=5) as vllm,
        PrometheusServer(scrape_config({"vllm": [vllm.instance]}, interval="1s")) as server,
    ):
        config = _config(tmp_path, f"prometheus: '{server.url}'", slack, webhook, pools)
        with _service(config, tmp_path) as service:
            _until(lambda: bool(webhook.accepted), 180, service)
            address = _own_address(tmp_path / "log")
            assert requests.get(f"{address}/-/ready", timeout=5).status_code == 200
            assert requests.get(f"{address}/-/healthy", timeout=5).status_code == 200
            own = requests.get(f"{address}/metrics", timeout=5).text
    assert "driftwatch_targets 1.0" in own
    ticket = webhook.accepted[0]
    assert (ticket["alert"], ticket["severity"]) == ("PromptsAreOthers", "ticket")
    assert ticket["pool"] == "chat"
    ratio = ticket["evidence"]["prompt_tokens_mean_ratio"]["value"]
    assert 3.5 < ratio < 5  # 128 over 30
    assert len(slack.accepted) == 1


@contextmanager
def _service(config: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running service that is told to stop afterwards, and does."""
    with (folder / "log").open("w+") as log:
        service = subprocess.Popen(
            [*DRIFTWATCH, "run", "-c", str(config)],
            stderr=log,
            cwd=folder,
            env={**os.environ, "NO_COLOR": "1"},
        )
        try:
            yield service
            service.send_signal(signal.SIGTERM)
            assert service.wait(timeout=60) == 0
        finally:
            service.kill()
            service.wait()


def _until(true: object, seconds: float, service: subprocess.Popen[bytes]) -> None:
    assert callable(true)
    deadline = time.monotonic() + seconds
    while not true():
        assert service.poll() is None, "the service ended"
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.2)


def _own_address(log: Path) -> str:
    """Where the service says it listens."""
    for line in log.read_text().splitlines():
        if "metrics=" in line:
            return line.partition("metrics=")[2].split("/metrics")[0]
    raise AssertionError(log.read_text())
