"""What people do and what is kept of it: both or neither, once, each under its own name."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import Recorded
from operation_cases import commit, fired
from web_cases import ANA, BEN, browser, send

from driftwatch.store import Store
from driftwatch.web.app import Web
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
    answer = browser(web).post(where, data=dict(fields), headers=ANA)
    assert answer.status_code == 503, answer.text
    assert _rows(copied) == before
    with sqlite3.connect(copied.path) as connection:
        connection.execute("DROP TRIGGER full")
    assert browser(web).post(where, data=dict(fields), headers=ANA).status_code == 303
    assert len(_rows(copied)["actions"]) == 1


def test_the_last_mark_counts(web: Web, copied: Recorded, opened: Callable[[], Store]) -> None:
    page = f"/incidents/{copied.incident_id}"
    for person, mark in ((ANA, "useful"), (BEN, "not useful")):
        answer = send(browser(web), page, "mark", person, mark=mark)
        assert answer.headers["location"] == f"{page}?after=marked"
    with opened() as store:
        mark_now = store.marks([copied.incident_id])[copied.incident_id]
        assert (mark_now.mark, mark_now.by) == ("not useful", "Ben")
        assert len(latest_actions(store, 9)) == 2


def test_a_silence_that_is_sent_many_times_at_once_is_one(
    web: Web, copied: Recorded, opened: Callable[[], Store]
) -> None:
    page, number = f"/incidents/{copied.incident_id}", 6
    ready = threading.Barrier(number)

    def post(_: int) -> str:
        client = browser(web)
        ready.wait(10)
        answer = send(client, page, "silence", ANA)
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"]).rpartition("=")[2]

    with ThreadPoolExecutor(number) as threads:
        done = sorted(threads.map(post, range(number)))
    assert done == ["before"] * (number - 1) + ["silenced"]
    with opened() as store:
        assert (len(store.silences()), len(latest_actions(store, 20))) == (1, 1)


def test_a_note_is_of_one_person_and_one_incident(
    web: Web, copied: Recorded, opened: Callable[[], Store]
) -> None:
    with opened() as store:
        commit(store, copied.now, fired(copied.now, "1"))
    for incident in (copied.incident_id, "1" * 12):
        for who in (ANA, BEN):
            for after in ("noted", "before"):
                answer = send(browser(web), f"/incidents/{incident}", "note", who, comment="seen")
                assert answer.headers["location"].endswith(f"after={after}")
    with opened() as store:
        assert len(latest_actions(store, 20)) == 4
