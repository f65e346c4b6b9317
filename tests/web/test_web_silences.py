"""Silences in the web: the preview, making one once, ending one, who may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from conftest import Recorded
from operation_cases import HOUR, commit, every_state, fired
from starlette.testclient import TestClient
from web_cases import ANA, BEARER, browser, form_token

from driftwatch.matchers import parse_matcher
from driftwatch.model import Transition
from driftwatch.store import Store, TickRecord
from driftwatch.web.context import Web

FORM_TYPE = "application/x-www-form-urlencoded"
JSON = {"Accept": "application/json"}


@pytest.fixture
def client(web: Web, opened: Callable[[], Store], firing: Recorded) -> TestClient:
    """A client on a database with incidents of every state."""
    with opened() as store:
        every_state(store, firing.now)
    return browser(web)


def _preview(client: TestClient, matchers: str) -> Any:
    answer = client.get("/silences", params={"matchers": matchers}, headers=ANA | JSON)
    assert answer.status_code == 200, answer.text
    return answer.json()["preview"]


def test_a_preview_counts_incidents_targets_and_rules_and_writes_nothing(
    client: TestClient, opened: Callable[[], Store], firing: Recorded
) -> None:
    began, now = firing.now - timedelta(days=9), firing.now
    long = fired(now, "9", started_at=began, firing_at=began)
    with opened() as store:
        commit(store, now, long)
        over = replace(long, state="resolved", resolved_at=now - HOUR)
        open_now = [one for one in store.open_incidents().values() if one.id != over.id]
        minute = (now, now + timedelta(minutes=1))
        happened = [Transition(over, "resolved", now)]
        store.commit_tick(TickRecord(*minute, incidents=open_now, transitions=happened))
    one = _preview(client, 'alert="BatchLimitBinding"\npool=rag-8b')
    # five are open; of those that resolved one fired 30 h ago, the other one before the week
    assert (one["open_incidents"], one["past_incidents"]) == (5, 1)
    assert (one["targets"], one["of_targets"]) == (0, 1)
    assert one["rules"] == ["BatchLimitBinding"]
    assert _preview(client, "instance=host:8000")["first_targets"] == ["host:8000"]
    assert _preview(client, "severity=notice")["of_rules"] > len(
        _preview(client, "severity=notice")["rules"]
    )
    assert _preview(client, "pol=x")["warnings"] == [
        "no incident has a label pol; did you mean pool?"
    ]
    with opened() as store:
        assert store.silences() == []


@pytest.mark.parametrize("wrong", ["instance", "instance=~(", "severity!=x", "x" * 600 + "=1"])
def test_a_wrong_matcher_is_refused(client: TestClient, wrong: str) -> None:
    answer = client.get("/silences", params={"matchers": wrong}, headers=ANA | JSON)
    assert (answer.status_code, bool(answer.json()["message"])) == (400, True)


def test_who_may_not_act_sees_the_list_and_no_preview(client: TestClient) -> None:
    answer = client.get("/silences", params={"matchers": "alert=X"})
    assert "<textarea" not in answer.text
    view = client.get("/silences.json", params={"matchers": "alert=X"}).json()
    assert (view["preview"], bool(view["preview_reason"])) == (None, True)
    assert client.post("/silences/add", data={"matchers": "alert=X"}).status_code == 403


def test_a_silence_is_made_once_with_its_audit_and_ended_once(
    client: TestClient, opened: Callable[[], Store], firing: Recorded
) -> None:
    page = client.get("/silences?matchers=pool%3Drag-8b&hours=4", headers=ANA).text
    data = {
        "form": form_token(page),
        "matchers": "pool=rag-8b\r\nalert=BatchLimitBinding",
        "hours": "4",
        "comment": "restart <b>",
    }
    answers = [client.post("/silences/add", data=data, headers=ANA) for _ in range(2)]
    assert [one.headers["location"] for one in answers] == [
        "/silences?after=silenced",
        "/silences?after=before",
    ]
    with opened() as store:
        (one,) = store.silences()
        (action,) = store.latest_actions(5)[:1]
    assert [m.text for m in one.matchers] == ["pool=rag-8b", "alert=BatchLimitBinding"]
    assert one.until - one.starts_at == 4 * HOUR
    assert (action.action, action.subject, action.by, action.via) == (
        *("silence", one.id, "Ana"),
        "web",
    )
    page = client.get("/silences?after=silenced", headers=ANA).text
    assert "restart &lt;b&gt;" in page
    path = f"/silences/{one.id}/expire"
    ended = [
        client.post(path, data={"form": form_token(page)}, headers=ANA).headers["location"]
        for _ in range(2)
    ]
    assert ended == ["/silences?after=ended", "/silences?after=before"]
    view = client.get("/silences.json").json()
    assert [row["state"] for row in view["rows"]] == ["ended"]
    answer = client.post(path, headers=BEARER | {"Content-Type": FORM_TYPE})
    assert (answer.status_code, "over already" in answer.json()["message"]) == (409, True)


def test_the_list_has_what_holds_what_comes_and_what_ended_lately(
    client: TestClient, opened: Callable[[], Store], firing: Recorded
) -> None:
    now = firing.now
    spans = {"ended": (-9, -1), "scheduled": (5, 9), "active": (-1, 3), "long over": (-900, -500)}
    with opened() as store:
        for name, (first, last) in spans.items():
            store.add_silence(
                [parse_matcher("severity=ticket")],
                until=now + last * HOUR,
                by=name,
                at=now + first * HOUR,
                comment="",
            )
    rows = client.get("/silences.json").json()["rows"]
    assert [(row["state"], row["created_by"], row["incidents"]) for row in rows] == [
        ("active", "active", 1),
        ("scheduled", "scheduled", 1),
        ("ended", "ended", 0),
    ]


def test_two_silences_of_one_page_end_both(
    client: TestClient, opened: Callable[[], Store], firing: Recorded
) -> None:
    with opened() as store:
        ids = [
            store.add_silence(
                [parse_matcher(f"pool=p{n}")],
                until=firing.now + HOUR,
                by="Ana",
                at=firing.now,
                comment="",
            ).id
            for n in range(2)
        ]
    token = form_token(client.get("/silences", headers=ANA).text)
    for id_ in ids:
        client.post(f"/silences/{id_}/expire", data={"form": token}, headers=ANA)
    rows = client.get("/silences.json").json()["rows"]
    assert [row["state"] for row in rows] == ["ended", "ended"]


@pytest.mark.parametrize(
    ("path", "data", "status"),
    [
        ("/silences/ffffffffffff/expire", {}, 404),
        ("/silences/add", {"matchers": "pool=x", "hours": "1e9"}, 400),
        ("/silences/add", {"matchers": "pool=x", "start": "2020-01-01T00:00"}, 409),
        ("/silences/add", {"matchers": "severity!=x"}, 409),
        ("/silences/add", {"matchers": "pool=x", "start": "9999-12-31T23:00:00Z"}, 400),
        ("/silences/add", {"matchers": "pool=x", "start": "0001-01-01T00:00:00+14:00"}, 400),
        ("/baselines/accept", {"of": "x", "since": "0001-01-01T00:00:00+14:00"}, 400),
        ("/silences/add", {}, 400),
    ],
)
def test_a_request_that_cannot_be_done_changes_nothing(
    client: TestClient,
    opened: Callable[[], Store],
    path: str,
    data: dict[str, str],
    status: int,
) -> None:
    answer = client.post(path, data=data, headers=BEARER)
    assert answer.status_code == status, answer.text
    with opened() as store:
        assert store.silences() == []


def test_a_form_of_another_day_is_stale(web: Web, client: TestClient) -> None:
    token = form_token(client.get("/silences?matchers=pool%3Dx", headers=ANA).text)
    web.clock.advance(timedelta(days=2))  # type: ignore[attr-defined]
    data = {"form": token, "matchers": "pool=x"}
    assert client.post("/silences/add", data=data, headers=ANA).status_code == 403
