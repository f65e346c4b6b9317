"""Real processes on one PostgreSQL: one is killed, stopped or cut off, the other goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import postgres_server
from fakes.postgres_server import PostgresServer
from fakes.prometheus_server import PrometheusServer
from fakes.webhook_server import WebhookServer
from process_cases import Process, until
from scheduler_cases import RULES, Cut, arrivals

from driftwatch.notify.page import Page

pytestmark = [
    pytest.mark.kill,
    pytest.mark.skipif(not postgres_server.installed(), reason=postgres_server.NOT_INSTALLED),
]
# three signs of life of 1 s, two minutes of 2 s, and what a machine that does much else needs
TAKES_OVER = 120.0  # a claim lasts 60 s


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.url(postgres.new_database())


@pytest.fixture
def webhook() -> Iterator[WebhookServer]:
    with WebhookServer(Page.model_json_schema()) as server:
        yield server


@pytest.fixture
def folder(blocks: Path, webhook: WebhookServer, tmp_path: Path) -> Iterator[Path]:
    """A configuration of a Prometheus whose past has one incident to tell of."""
    (tmp_path / "own.yaml").write_text(RULES)
    with PrometheusServer(blocks=blocks) as server:
        (tmp_path / "driftwatch.yaml").write_text(
            f"sources: [{{prometheus: '{server.url}', match: {{job: vllm}}}}]\n"
            "interval: 2s\nlisten: 127.0.0.1:0\nrules: [own.yaml]\n"
            f"receivers: [{{name: hook, webhook: {{url: '{webhook.url}'}}}}]\n"
        )
        yield tmp_path


def _incidents(folder: Path, database: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "driftwatch", "incidents", "--json"]
    listed = subprocess.run(
        command, cwd=folder, env={**os.environ, "DRIFTWATCH_DATABASE": database},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(listed.stdout)["incidents"]
    return found


def test_after_kill_9_the_other_goes_on_with_every_batch(
    folder: Path, database: str, webhook: WebhookServer
) -> None:
    with Process(folder, "a", database) as a, Process(folder, "b", database) as b:
        until(lambda: webhook.accepted, 120, a, b)
        until(lambda: a.ticks and b.ticks, 60, a, b)
        (before,) = _incidents(folder, database)
        a.signal(signal.SIGKILL)
        until(lambda: b.own("driftwatch_batches") == 16, TAKES_OVER, a, b)
        ticks = b.ticks
        until(lambda: b.ticks >= ticks + 4, TAKES_OVER, a, b)
        assert b.page("/-/ready")[0] == 200
        (after,) = _incidents(folder, database)
        assert (after["id"], after["started_at"]) == (before["id"], before["started_at"])
        firing = {key: count for key, count in arrivals(webhook).items() if "-firing" in key}
        assert firing == {f"{before['id']}-firing": 1}
        b.signal(signal.SIGTERM)
        assert b.process.wait(60) == 0


def test_one_that_is_stopped_in_a_delivery_and_continued_sends_nothing_more(
    folder: Path, database: str, webhook: WebhookServer
) -> None:
    webhook.hang_next()
    with Process(folder, "a", database) as a:
        until(lambda: webhook.requests, 120, a)
        with Process(folder, "b", database) as b:
            a.signal(signal.SIGSTOP)
            until(lambda: webhook.accepted, TAKES_OVER, a, b)
            ticks = b.ticks
            a.signal(signal.SIGCONT)
            until(lambda: b.ticks >= ticks + 4, TAKES_OVER, a, b)
            until(lambda: a.page("/-/ready")[0] == 200, TAKES_OVER, a, b)
            (count,) = arrivals(webhook).values()
            assert count == 2  # one that hung, and its repetition with the same key
            assert len(webhook.accepted) == 1
            (incident,) = _incidents(folder, database)
            assert incident["state"] == "firing"


def test_one_that_is_cut_off_from_the_database_comes_back_when_it_can(
    folder: Path, postgres: PostgresServer, database: str, webhook: WebhookServer
) -> None:
    """Its receiver is reachable all the time; what it refused is due again after the cut."""
    name = database.partition("@/")[2].partition("?")[0]
    with tempfile.TemporaryDirectory() as sockets:
        way = Cut(postgres.folder, Path(sockets))
        through = f"postgresql://driftwatch@/{name}?host={sockets}"
        webhook.fail_next(503)  # and the next try in 5 s, after the cut
        with Process(folder, "a", through) as a:
            until(lambda: webhook.requests, 120, a)
            way.cut()
            with Process(folder, "b", database) as b:
                until(lambda: webhook.accepted, 120, a, b)
                until(lambda: b.own("driftwatch_batches") == 16, TAKES_OVER, a, b)
                way.mend()
                until(lambda: a.page("/-/ready")[0] == 200, 120, a, b)
                assert list(arrivals(webhook).values()) == [2]  # refused, then taken
                assert a.process.poll() is None
        way.close()
