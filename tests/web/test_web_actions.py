"""What people did: every action listed with its person, its place and what it was about."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from conftest import Recorded
from operation_cases import every_state
from starlette.testclient import TestClient
from web_cases import browser

from driftwatch.store import Store
from driftwatch.web.context import Web


@pytest.fixture
def client(web: Web, opened: Callable[[], Store], firing: Recorded) -> TestClient:
    """A client on a database in which two people did things."""
    at = firing.now + timedelta(seconds=1)
    with opened() as store:
        every_state(store, firing.now)
        store.note_action("mark", "Ben", at, incident_id="2" * 12, subject="useful", via="slack")
        store.note_action("accept baseline", "Ben", at, subject="b1", comment="<i>new</i> mix")
        store.note_action("forecast", "Ana", at, incident_id="2" * 12, subject="7", via="web")
    return browser(web)


def _view(client: TestClient, query: str = "") -> Any:
    answer = client.get(f"/actions.json{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_what_was_done_last_comes_first_with_what_it_is_about(client: TestClient) -> None:
    rows = _view(client)["rows"]
    assert [(row["by"], row["action"], row["via"]) for row in rows] == [
        ("Ana", "forecast", "web"),
        ("Ben", "accept baseline", "command line"),
        ("Ben", "mark useful", "slack"),
        ("Ana <b>", "acknowledge", "command line"),
    ]
    assert [row["about"]["path"] for row in rows] == [
        f"/incidents/{'2' * 12}/what-if/7",
        "/baselines",
        f"/incidents/{'2' * 12}",
        f"/incidents/{'1' * 12}",
    ]
    assert rows[3]["until"] is not None
    assert rows[2]["comment"] is None


def test_the_list_is_one_persons_and_in_parts(client: TestClient) -> None:
    assert [row["by"] for row in _view(client, "?by=Ben")["rows"]] == ["Ben", "Ben"]
    second = _view(client, "?by=Ben&size=1&page=2")
    assert [row["action"] for row in second["rows"]] == ["mark useful"]
    assert second["part"]["before"] == "/actions?size=1&by=Ben"
    assert _view(client, "?by=Nobody")["rows"] == []


def test_the_page_escapes_what_people_wrote(client: TestClient) -> None:
    html = client.get("/actions").text
    assert "&lt;i&gt;new&lt;/i&gt; mix" in html
    assert "Ana &lt;b&gt;" in html
    assert "Nobody of that name has done anything yet." in client.get("/actions?by=Eve").text
