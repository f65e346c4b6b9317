"""A filled database of 0.6 under this version: nothing that people said or were told is lost."""

from __future__ import annotations

import lzma
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from driftwatch.clock import ManualClock
from driftwatch.collect.pages.source import PagesSource
from driftwatch.errors import NoVerdict, StoreError
from driftwatch.receivers.slack import SlackSender
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.run import Receiver, Service
from driftwatch.store.store import Store
from driftwatch.store.tables import SCHEMA_REVISION
from driftwatch.testing.exposition_server import ReplayedExposition, read_pages
from driftwatch.testing.slack_server import SlackServer

FILE = Path(__file__).parents[1] / "data" / "store" / "0.6.sqlite.xz"
INCIDENT = "b3f12076a7d1"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The database, with its page still to be sent."""
    path = tmp_path / "driftwatch.db"
    path.write_bytes(lzma.decompress(FILE.read_bytes()))
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE deliveries SET status = 'pending', sent_at = NULL, attempts = 0, "
            "next_attempt_at = planned_at"
        )
    connection.close()
    return path


def test_it_is_refused_before_the_upgrade(run: Callable[..., Result], database: Path) -> None:
    result = run("incidents", "--all", "--db", database)
    assert isinstance(result.exception, StoreError)
    assert result.exception.help_text == f"run: driftwatch db upgrade --db {database}"


def test_what_people_said_and_were_told_is_kept(run: Callable[..., Result], database: Path) -> None:
    upgraded = run("db", "upgrade", "--db", database)
    assert upgraded.exit_code == 0
    assert upgraded.stdout == f"{database}: schema 0005 -> {SCHEMA_REVISION}\n"
    listed = run("incidents", "--all", "--db", database)
    assert listed.exit_code == 0
    assert listed.stdout.split("\t")[:3] == [INCIDENT, "firing", "page"]
    baselines = run("baseline", "list", "--db", database)
    assert (baselines.exit_code, baselines.stdout.split("\t")[:2]) == (0, ["daaebb61", "host:8000"])
    # its minutes were packed in a format of 0.6, and are deleted: a report has no verdict
    report = run("report", "--week", "2026-W47", "--db", database)
    assert isinstance(report.exception, NoVerdict)
    with Store.open(database, migrate=False) as store:
        assert store.marks([INCIDENT])[INCIDENT].because == "cap was full"
        assert [s.created_by for s in store.silences()] == ["ana"]


def test_its_service_goes_on_and_sends_the_page_of_06(
    run: Callable[..., Result], database: Path, shared_data: Path
) -> None:
    assert run("db", "upgrade", "--db", database).exit_code == 0
    recorded = read_pages(shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz")
    with Store.open(database, migrate=False) as store:
        since = next(iter(store.open_incidents().values())).last_true_at.timestamp()
    clock = ManualClock(datetime.fromtimestamp(since, UTC))
    with (
        Store.open(database) as store,
        SlackServer() as slack,
        ReplayedExposition(recorded, clock=lambda: clock.now().timestamp()) as server,
    ):
        source = PagesSource({server.url: {"instance": "host:8000"}}, clock=clock)
        receivers = [
            Receiver("inbox", ("page", "ticket", "notice"), SlackSender("inbox", slack.url), "each")
        ]
        service = Service([source], plan_of_rules(()), store, receivers, clock)
        results: list[Any] = []
        for at, _ in recorded:
            if since <= at < since + 25 * 60:
                clock.set(datetime.fromtimestamp(at, UTC))
                assert service.tick_once().problems == ()
                results += service.deliver_once()
        service.stop()
        assert [(r.subject, r.event, r.result) for r in results] == [
            (INCIDENT, "firing", "sent"),
            (INCIDENT, "resolved", "sent"),
        ]
        assert len(slack.accepted) == 2
        assert store.incident(INCIDENT).state == "resolved"
        assert len(store.baselines()) == 1
        end = clock.now().isoformat()
    report = run("report", "--week", "2026-W47", "--db", database)
    assert report.exit_code == 0, report.output
    explained = run("explain", "host:8000", "--at", end, "--db", database)
    assert explained.exit_code == 0, explained.output
