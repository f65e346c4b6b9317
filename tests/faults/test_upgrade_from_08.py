"""The database of 0.8 with its incident open: it goes on, is paged of once, and resolves."""

from __future__ import annotations

import lzma
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from open_incident_cases import Inbox

from driftwatch.clock import ManualClock
from driftwatch.collect.pages.source import PagesSource
from driftwatch.database_place import place_of
from driftwatch.incidents.routing import Route
from driftwatch.receivers.webhook import WebhookSender
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.receivers import Receiver
from driftwatch.service.run import Service
from driftwatch.store.database_copy import copy_database
from driftwatch.store.migrate import upgrade_database
from driftwatch.store.store import Store
from driftwatch.testing.exposition_server import ReplayedExposition, read_pages

FILE = Path(__file__).parents[1] / "data" / "store" / "0.8.sqlite.xz"
ROUTES = (Route(("inbox",), (), 0.0, ((300.0, ("boss",)),)),)
# what 0.8 left: (of its page, of its incident), and what must come after the upgrade
SENT = "UPDATE deliveries SET status = 'sent', sent_at = planned_at, next_attempt_at = NULL"
TRIED = "UPDATE deliveries SET attempts = 2, last_error = '503', last_attempt_at = planned_at"
NOBODYS = "UPDATE incidents SET acknowledged_at = NULL, acknowledged_by = NULL"
ANAS = "UPDATE incidents SET acknowledged_by = 'ana'"


@pytest.mark.parametrize(
    ("database", "left", "inbox_events", "boss_events"),
    [
        ("sqlite", (SENT, NOBODYS), ["resolved"], ["firing", "resolved"]),
        ("postgres", (TRIED, ANAS), ["firing", "resolved"], []),
    ],
    indirect=["database"],
    ids=["its page was sent", "its page waits, acknowledged, moved to PostgreSQL"],
)
def test_what_08_left_open_goes_on(
    database: str,
    left: tuple[str, ...],
    inbox_events: list[str],
    boss_events: list[str],
    tmp_path: Path,
    shared_data: Path,
    request: pytest.FixtureRequest,
) -> None:
    old = tmp_path / "0.8.db"
    old.write_bytes(lzma.decompress(FILE.read_bytes()))
    with closing(sqlite3.connect(old)) as connection:
        for statement in left:
            connection.execute(statement)
        connection.commit()
    upgrade_database(old)
    if database.startswith("postgresql"):
        postgres = request.getfixturevalue("postgres")
        database = postgres.url(postgres.new_database())
        copy_database(place_of(old), place_of(database))
    else:
        database = str(old)
    recorded = read_pages(shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz")
    with Store.open(database, migrate=False) as store, Inbox() as inbox:
        (before,) = store.open_incidents().values()
        clock = ManualClock(before.last_true_at)
        hooks = [WebhookSender(name, f"{inbox.address}/{name}") for name in ("inbox", "boss")]
        receivers = [Receiver(one.name, ("page", "ticket"), one) for one in hooks]
        plan = replace(plan_of_rules(()), routes=ROUTES)
        with ReplayedExposition(recorded, clock=lambda: clock.now().timestamp()) as server:
            source = PagesSource({server.url: {"instance": "host:8000"}}, clock=clock)
            service = Service([source], plan, store, receivers, clock)
            for at, _ in recorded[::6]:
                if at > before.last_true_at.timestamp() and store.open_incidents():
                    clock.set(datetime.fromtimestamp(at, UTC))
                    service.tick_once()
                    service.deliver_once()
            service.stop()
        events = {name: _events(inbox, name) for name in ("inbox", "boss")}
        assert events["boss"] == boss_events
        assert events["inbox"].count("report") == 1  # that 0.8 had made, and not sent
        assert [event for event in events["inbox"] if event != "report"] == inbox_events
        (after,) = store.incidents()
        assert (after.id, after.state) == (before.id, "resolved")
        assert after.started_at == before.started_at
        about = {page["incident"]["id"] for page in inbox.pages if "incident" in page}
        assert about == {before.id}


def _events(inbox: Inbox, name: str) -> list[str]:
    """What a receiver was sent, in order."""
    return [
        page.get("event", "report")
        for request, page in zip(inbox.requests, inbox.pages, strict=True)
        if request.path == f"/{name}"
    ]
