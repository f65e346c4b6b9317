"""Databases of 0.11 with an incident open, one of each kind: upgraded, ticked on, and shown."""

from __future__ import annotations

import lzma
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from fakes.exposition_server import ReplayedExposition, read_pages
from open_incident_cases import Inbox
from starlette.testclient import TestClient

from driftwatch.cli.main import cli
from driftwatch.clock import ManualClock
from driftwatch.collect.pages.source import PagesSource
from driftwatch.database_place import Place, place_of
from driftwatch.receivers.webhook import WebhookSender
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.receivers import Receiver
from driftwatch.service.run import Service
from driftwatch.settings.web import WebSettings
from driftwatch.store.store import Store
from driftwatch.store.tables import SCHEMA_REVISION
from driftwatch.web.app import application
from driftwatch.web.server import web_of

DATA = Path(__file__).parents[1] / "data" / "store"
KINDS = {"sqlite": "0.11.sqlite.xz", "postgres": "0.11.sql.xz"}
INCIDENT = "b3f12076a7d1"


@pytest.fixture(params=["sqlite", "postgres"])
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """As 0.11 left it: schema 0011, nothing upgraded yet."""
    stored = lzma.decompress((DATA / KINDS[request.param]).read_bytes())
    if request.param == "sqlite":
        (tmp_path / "0.11.db").write_bytes(stored)
        return place_of(tmp_path / "0.11.db")
    server = request.getfixturevalue("postgres")
    url = server.url(server.new_database())
    with psycopg.connect(url) as connection:
        connection.execute(stored)  # what pg_dump --inserts wrote
    return place_of(url)


@pytest.mark.usefixtures("migrations_run")
def test_what_011_left_open_goes_on(left: Place, shared_data: Path) -> None:
    upgraded = CliRunner().invoke(cli, ["db", "upgrade", "--db", left.typed])
    assert upgraded.exit_code == 0, upgraded.output
    assert f"0011 -> {SCHEMA_REVISION}" in upgraded.output
    recorded = read_pages(shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz")
    with Store.open(left, migrate=False) as store, Inbox() as inbox:
        (before,) = store.open_incidents().values()
        assert before.id == INCIDENT
        clock = ManualClock(before.last_true_at)
        receiver = WebhookSender("inbox", f"{inbox.address}/inbox")
        with ReplayedExposition(recorded, clock=lambda: clock.now().timestamp()) as server:
            source = PagesSource({server.url: {"instance": "host:8000"}}, clock=clock)
            service = Service(
                [source],
                plan_of_rules(()),
                store,
                [Receiver("inbox", ("page", "ticket"), receiver)],
                clock,
            )
            for at, _ in recorded[::6]:
                if at > before.last_true_at.timestamp() and store.open_incidents():
                    clock.set(datetime.fromtimestamp(at, UTC))
                    assert service.tick_once().problems == ()
                    service.deliver_once()
            service.stop()
        # the page and the acknowledgement that waited, then the end: each once
        sent = [page["event"] for page in inbox.pages if page["incident"]["id"] == INCIDENT]
        assert sorted(sent) == ["acknowledged", "firing", "resolved"]
        assert sent[-1] == "resolved"
        (after,) = store.incidents()
        assert (after.id, after.state) == (INCIDENT, "resolved")
        assert after.started_at == before.started_at
        assert store.marks([INCIDENT])[INCIDENT].because == "cap was full"
        assert [silence.comment for silence in store.silences()] == ["maintenance"]
        assert [baseline.accepted_by for baseline in store.baselines()] == ["ana"]
    _the_pages_show_it(left)


def _the_pages_show_it(place: Place) -> None:
    own = WebSettings.model_validate({"listen": "127.0.0.1:9096"})
    web = web_of(None, plan_of_rules(()), place, own=own)
    client = TestClient(application(web), base_url="http://127.0.0.1:9096")

    def page(path: str) -> str:
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        return answer.text

    try:
        for path in ("/", "/incidents"):
            page(path)
        assert "resolved" in page(f"/incidents/{INCIDENT}")
    finally:
        web.database.close()
