"""Two schedulers on one PostgreSQL: one ticks and sends; the other takes over and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from process_cases import Process, until
from scheduler_cases import INTERVAL, RULES, Cut, arrivals

from driftwatch.testing import postgres_server
from driftwatch.testing.exposition_server import read_pages
from driftwatch.testing.postgres_server import PostgresServer
from driftwatch.testing.prometheus_server import PrometheusServer, backfill
from driftwatch.testing.webhook_server import WebhookServer

pytestmark = [
    pytest.mark.kill,
    pytest.mark.skipif(not postgres_server.installed(), reason=postgres_server.NOT_INSTALLED),
]
ROOT = Path(__file__).resolve().parents[2]
# minutes into run_cap: requests have queued for four minutes, and still do
QUEUED = 12.5
# two intervals, and what a machine with one core too few needs to start Python's threads
TAKES_OVER = 2 * INTERVAL + 5


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.url(postgres.new_database())


@pytest.fixture
def webhook() -> Iterator[WebhookServer]:
    with WebhookServer(json.loads((ROOT / "docs/page.schema.json").read_text())) as server:
        yield server


@pytest.fixture
def folder(
    shared_data: Path, real_prometheus: None, webhook: WebhookServer, tmp_path: Path
) -> Iterator[Path]:
    """A configuration of a Prometheus whose past has one incident to tell of."""
    pages = read_pages(shared_data / "vllm-0.32/run_cap/scrapes.jsonl.gz")
    start = pages[0][0]
    shift = time.time() - 20 - (start + QUEUED * 60)
    moved = [(at + shift, body) for at, body in pages if at <= start + QUEUED * 60]
    backfill(moved, {"job": "vllm", "instance": "gpu-7:8000"}, tmp_path / "blocks")
    (tmp_path / "own.yaml").write_text(RULES)
    with PrometheusServer(blocks=tmp_path / "blocks") as server:
        (tmp_path / "driftwatch.yaml").write_text(
            f"sources: [{{prometheus: '{server.url}', match: {{job: vllm}}}}]\n"
            f"interval: {INTERVAL:g}s\nlisten: 127.0.0.1:0\nrules: [own.yaml]\n"
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


def _roles(one: Process, other: Process) -> tuple[Process, Process]:
    """Leader and standby, once there is one of each."""
    until(lambda: one.leads or other.leads, 60, one, other)
    leader, standby = (one, other) if one.leads else (other, one)
    until(lambda: "waiting" in standby.log, 30, one, other)
    return leader, standby


def test_of_two_started_at_once_one_leads_and_after_kill_9_the_other_goes_on(
    folder: Path, database: str, webhook: WebhookServer
) -> None:
    with Process(folder, "a", database) as a, Process(folder, "b", database, 300.0) as b:
        leader, standby = _roles(a, b)
        until(lambda: leader.ticks >= 1, 60, a, b)
        until(lambda: webhook.accepted, 30, a, b)
        status, text = standby.page("/-/ready")
        assert (status, text.split(":")[0]) == (503, "standby")
        assert f"/{leader.process.pid} leads" in text
        assert standby.page("/-/healthy")[0] == 200
        assert standby.own("driftwatch_leader") == 0
        assert standby.own("driftwatch_targets") is None
        (before,) = _incidents(folder, database)
        subprocess.run(
            [sys.executable, "-m", "driftwatch", "ack", before["id"], "--by", "ana"],
            cwd=folder, env={**os.environ, "DRIFTWATCH_DATABASE": database}, check=True,
        )  # fmt: skip

        leader.signal(signal.SIGKILL)
        until(lambda: standby.leads, TAKES_OVER, a, b)
        until(lambda: standby.ticks >= 2, 60, a, b)
        assert standby.own("driftwatch_lease_fence") == 2
        (after,) = _incidents(folder, database)
        assert after["id"] == before["id"]
        assert after["started_at"] == before["started_at"]
        assert after["acknowledged_by"] == "ana"
        firing = {key: count for key, count in arrivals(webhook).items() if "-firing" in key}
        assert firing == {f"{before['id']}-firing": 1}
        assert not [page for page in webhook.accepted if page["event"] == "resolved"]
        standby.signal(signal.SIGTERM)
        assert standby.process.wait(60) == 0


def test_a_leader_that_is_stopped_in_a_delivery_and_continued_sends_nothing_more(
    folder: Path, database: str, webhook: WebhookServer
) -> None:
    webhook.hang_next()
    with Process(folder, "a", database) as a:
        until(lambda: a.leads, 60, a)
        with Process(folder, "b", database) as b:
            until(lambda: webhook.requests, 60, a, b)
            a.signal(signal.SIGSTOP)
            until(lambda: b.leads, TAKES_OVER, a, b)
            until(lambda: webhook.accepted, 30, a, b)
            fenced = b.ticks
            a.signal(signal.SIGCONT)
            assert a.process.wait(60) == 1
            until(lambda: b.ticks >= fenced + 2, 60, a, b)
            assert b.leads
            (count,) = arrivals(webhook).values()
            assert count == 2  # one that hung, and its repetition with the same key
            assert len(webhook.accepted) == 1
            assert "lease lost: another driftwatch has taken over" in a.log
            (incident,) = _incidents(folder, database)
            assert incident["state"] == "firing"


def test_a_leader_that_is_cut_off_from_the_database_stops_and_ends(
    folder: Path, postgres: PostgresServer, database: str, webhook: WebhookServer
) -> None:
    """Its receiver is reachable all the time; what it refused is due again after the cut."""
    name = database.partition("@/")[2].partition("?")[0]
    with tempfile.TemporaryDirectory() as sockets:
        way = Cut(postgres.folder, Path(sockets))
        through = f"postgresql://driftwatch@/{name}?host={sockets}"
        webhook.fail_next(503)  # and the next try in 5 s, after the cut
        with Process(folder, "a", through) as a:
            until(lambda: webhook.requests, 60, a)
            with Process(folder, "b", database) as b:
                until(lambda: "waiting" in b.log, 60, a, b)
                way.cut()
                until(lambda: b.leads, TAKES_OVER, a, b)
                assert not a.leads
                until(lambda: webhook.accepted, 30, a, b)
                way.mend()
                assert a.process.wait(60) == 1
                assert list(arrivals(webhook).values()) == [2]  # refused, then taken
        way.close()
