"""Pages of a database that stops being read: never an old fleet as if it were now's."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from web_cases import browser, web_at
from web_fleet_cases import END, fleet_database

from driftwatch.web import fleet


def _wait(until: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not until():
        assert time.monotonic() - began < 20
        time.sleep(0.02)


def test_a_fleet_that_cannot_be_read_is_no_old_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the targets are read from is another thing: not an error that the store names."""
    monkeypatch.setattr(fleet, "EACH_SECONDS", 0.05)
    path = tmp_path / "fleet.db"
    fleet_database(path, [{"instance": "a:8000"}])
    web = web_at(path, END, tmp_path)
    names = "since, until, seconds, packed, first_instance, last_instance"
    copied = f"INSERT INTO minute_batches ({names}, frame) SELECT {names}, frame"
    client = browser(web)
    client._transport.raise_server_exceptions = False  # type: ignore[attr-defined]
    with client:
        _wait(web.fleet._is_kept.is_set)
        assert client.get("/api/v1/targets").json()["rows"][0]["state"] == "as its baseline"
        with sqlite3.connect(path) as connection:
            (kept,) = connection.execute("SELECT value FROM memory WHERE name = 'tick'").fetchone()
            connection.execute("UPDATE memory SET value = '[]' WHERE name = 'tick'")
            connection.execute(f"{copied} FROM minute_batches")
        _wait(lambda: not web.fleet._is_kept.is_set())
        answer = client.get("/api/v1/targets")
        assert (answer.status_code, answer.json()["status"]) == (500, 500)
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE memory SET value = ? WHERE name = 'tick'", (kept,))
        _wait(web.fleet._is_kept.is_set)
        assert client.get("/api/v1/targets").json()["rows"][0]["state"] == "as its baseline"
    assert not web.fleet._is_kept.is_set()
