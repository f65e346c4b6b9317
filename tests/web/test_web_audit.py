"""What people do and what is kept of it: both or neither, once, each under its own name."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from conftest import Recorded
from operation_cases import commit, fired
from web_cases import ANA, BEARER, BEN, browser, form_token

from driftwatch.clock import SystemClock
from driftwatch.store import Store
from driftwatch.web.context import Web
from tests.outbox import latest_actions

# every form that changes something of an incident
FORMS = (
    ("/incidents/{incident}/acknowledge", {}),
    ("/incidents/{incident}/silence", {}),
    ("/incidents/{incident}/mark", {"mark": "useful"}),
    ("/incidents/{incident}/note", {"comment": "on it"}),
)
_TABLES = ("incidents", "silences", "marks", "pins", "memory", "actions")


def _rows(recorded: Recorded) -> dict[str, list[Any]]:
    with sqlite3.connect(recorded.path) as connection:
        return {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
            for name in _TABLES
        }


@pytest.mark.parametrize(("path", "fields"), FORMS, ids=lambda one: str(one)[-12:])
def test_what_cannot_be_kept_is_not_done(
    web: Web, copied: Recorded, path: str, fields: Mapping[str, str]
) -> None:
    with sqlite3.connect(copied.path) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON actions BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    before = _rows(copied)
    where = path.format(incident=copied.incident_id)
    answer = browser(web).post(where, data=dict(fields), headers=BEARER)
    assert answer.status_code == 503, answer.text
    assert _rows(copied) == before
    with sqlite3.connect(copied.path) as connection:
        connection.execute("DROP TRIGGER full")
    assert browser(web).post(where, data=dict(fields), headers=BEARER).status_code == 200
    assert len(_rows(copied)["actions"]) == 1


def test_a_mark_that_is_sent_again_does_not_undo_anothers(
    web: Web, copied: Recorded, opened: Callable[[], Store]
) -> None:
    page = f"/incidents/{copied.incident_id}"
    ana, ben = browser(web), browser(web)
    data = {"form": form_token(ana.get(page, headers=ANA).text)}
    bens = {"form": form_token(ben.get(page, headers=BEN).text)}
    sent = [
        ana.post(f"{page}/mark", data=data | {"mark": "useful"}, headers=ANA),
        ben.post(f"{page}/mark", data=bens | {"mark": "not useful"}, headers=BEN),
        ana.post(f"{page}/mark", data=data | {"mark": "useful"}, headers=ANA),
    ]
    assert [one.headers["location"].rpartition("=")[2] for one in sent] == [
        *("marked", "marked"),
        "before",
    ]
    with opened() as store:
        mark = store.marks([copied.incident_id])[copied.incident_id]
        assert (mark.mark, mark.by) == ("not useful", "Ben")
        assert len(latest_actions(store, 9)) == 2
    # the other button of the form that is still open
    ana.post(f"{page}/mark", data=data | {"mark": "not useful"}, headers=ANA)
    with opened() as store:
        assert store.marks([copied.incident_id])[copied.incident_id].by == "Ana"
        assert len(latest_actions(store, 9)) == 3


def test_a_silence_that_many_send_at_once_is_one(
    web: Web, copied: Recorded, opened: Callable[[], Store]
) -> None:
    moving = replace(web, clock=SystemClock())
    path, number = f"/incidents/{copied.incident_id}/silence", 6
    headers, ready = BEARER | {"Idempotency-Key": "1"}, threading.Barrier(number)

    def send(_: int) -> bool:
        client = browser(moving)
        ready.wait(10)
        answer = client.post(path, data={}, headers=headers)
        assert answer.status_code == 200, answer.text
        return bool(answer.json()["done"])

    with ThreadPoolExecutor(number) as threads:
        done = list(threads.map(send, range(number)))
    assert sorted(done) == [False] * (number - 1) + [True]
    with opened() as store:
        assert (len(store.silences()), len(latest_actions(store, 20))) == (1, 1)


def test_a_key_is_of_one_person_and_one_thing(
    web: Web, copied: Recorded, opened: Callable[[], Store]
) -> None:
    with opened() as store:
        commit(store, copied.now, fired(copied.now, "1"))
    client, key = browser(web), "x" * 200
    for incident in (copied.incident_id, "1" * 12):
        for who in ("Ana", "Ben"):
            headers = BEARER | {"X-Driftwatch-Person": who, "Idempotency-Key": key + who}
            for done in (True, False):
                path = f"/incidents/{incident}/note"
                answer = client.post(path, data={"comment": "seen"}, headers=headers).json()
                assert answer["done"] is done
                assert answer["text"] == ("noted" if done else "this form was sent before")
    with opened() as store:
        assert len(latest_actions(store, 20)) == 4
