"""Deliveries that were not taken: whose, why, since when, what the fallback was sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from conftest import Recorded
from operation_cases import HOUR, stuck_outbox
from starlette.testclient import TestClient
from web_cases import browser

from driftwatch.store import Store
from driftwatch.web.context import Web


@pytest.fixture
def client(web: Web, opened: Callable[[], Store], firing: Recorded) -> TestClient:
    """A client on a database with an outbox that is stuck."""
    with opened() as store:
        stuck_outbox(store, firing.now)
    return browser(replace(web, plan=replace(web.plan, fallback_receiver="fallback")))


def _view(client: TestClient, query: str = "") -> Any:
    answer = client.get(f"/undelivered.json{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def _rows(client: TestClient, query: str = "") -> list[tuple[str, str]]:
    return [(row["receiver"], row["status"]) for row in _view(client, query)["rows"]]


def test_each_delivery_that_was_not_taken_is_listed_with_why(
    client: TestClient, firing: Recorded
) -> None:
    every = _rows(client)
    assert every[0] == ("slack", "given up")
    assert set(every[1:]) == {("mail", "is retried"), ("waits", "waits"), ("fallback", "waits")}
    assert _rows(client, "?status=dead") == [("slack", "given up")]
    assert _rows(client, "?status=fallback") == [("fallback", "waits")]
    assert _rows(client, "?receiver=mail") == [("mail", "is retried")]
    (dead,) = _view(client, "?status=dead")["rows"]
    assert (dead["error"], dead["attempts"]) == ("HTTP 500 <b>", 1)
    assert dead["about"]["path"] == "/incidents/" + "1" * 12
    html = client.get("/undelivered").text
    assert "HTTP 500 &lt;b&gt;" in html
    assert "What is given up goes to fallback." in html


def test_receivers_are_counted_and_the_unheard_incident_is_called(client: TestClient) -> None:
    view = _view(client)
    # of the first incident nobody has taken the page; the second one's receiver has
    assert view["unheard"] == 1
    assert {
        row["receiver"]: (row["pending"], row["failing"], row["given_up"])
        for row in view["receivers"]
    } == {"fallback": (1, 0, 0), "mail": (1, 1, 0), "slack": (0, 0, 1), "waits": (1, 0, 0)}


def test_what_was_given_up_long_ago_is_not_listed(web: Web, client: TestClient) -> None:
    web.clock.advance(200 * HOUR)  # type: ignore[attr-defined]
    assert _rows(client, "?status=dead") == _rows(client, "?status=fallback") == []
    assert len(_rows(client, "?status=pending")) == 3


def test_a_part_behind_the_last_is_the_last_and_a_huge_one_is_refused(client: TestClient) -> None:
    assert len(_view(client, "?size=3&page=90")["rows"]) == 1
    assert client.get("/undelivered?size=1000000000").status_code == 400
    assert client.get("/undelivered?status=lost").status_code == 400
