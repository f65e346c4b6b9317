"""Databases that do not serve, and things that are not there."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from recorded_cases import Recorded
from web_cases import ANA, browser, send, web_at
from web_fleet_cases import END

from driftwatch.web.app import Web


def test_what_is_not_there_is_said_with_a_way_on(web: Web, firing: Recorded) -> None:
    client = browser(web)
    for path, link in {
        f"/incidents/{firing.incident_id[:6]}ffffff": "/incidents?q=",
        "/incidents/" + "b" * 500: "/incidents?q=",
        "/incidents/%00": "/incidents?q=",
        "/pools/nothing": "/fleet?q=nothing",
        "/targets/hots:8000": "/fleet?q=hots%3A8000",
        "/flet": "/fleet",
    }.items():
        answer = client.get(path)
        assert answer.status_code == 404 and f'href="{link}' in answer.text, path
    lost = client.get("/api/v1/incidents/zz")
    assert (lost.status_code, lost.json()["status"]) == (404, 404)
    assert lost.json()["link"]["path"] == "/incidents?q=zz"


def test_a_missing_database_is_named_and_found_when_it_comes(
    firing: Recorded, tmp_path: Path
) -> None:
    path = tmp_path / "late.db"
    client = browser(web_at(path, firing.now, tmp_path))
    answer = client.get("/fleet")
    assert answer.status_code == 503
    assert client.get("/-/healthy").text == "ok\n"
    assert "there is no database" in answer.text and "driftwatch run makes one" in answer.text
    shutil.copy(firing.path, path)
    assert client.get("/fleet").status_code == 200


def test_a_locked_database_is_read_and_not_written(
    web: Web, copied: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftwatch.web.database.BUSY_SECONDS", 0.1)
    client, page = browser(web), f"/incidents/{copied.incident_id}"
    with sqlite3.connect(copied.path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = send(client, page, "acknowledge", ANA)
        assert answer.status_code == 503
        assert "is locked by another process" in answer.text and "try again" in answer.text
        assert client.get("/fleet").status_code == 200
        other.execute("ROLLBACK")
    assert send(client, page, "acknowledge", ANA).status_code == 303


def test_reading_cannot_write(web: Web) -> None:
    with pytest.raises(Exception, match="is read-only") as refused:
        web.database.reader().note_action("note", "Ana", END)
    assert getattr(refused.value, "code", "") == "read-only"
