"""What holds for every page that is registered: hostile labels, bad parameters, times without data,
a database that cannot be written to, and what is not there.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient
from web_cases import ANA, END, Recorded, browser, fired, fleet_database, send, web_at

from driftwatch.model import TargetKey
from driftwatch.store.store import Store
from driftwatch.web.app import PAGES, Web
from driftwatch.web.page import Page

HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>'-alert(1)-'",
    "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    "javascript:alert(1)",
    "a\nb\r\nSet-Cookie: x=1",
    "\u202egnp.exe\u0000\u200f",
    "x" * 100_000,
)
_NEVER = ("<script", "<img src=x", "root:", "\u202e", "\u200f", "\x00", 'href="javascript')


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet whose every label means harm, one server and one incident for each."""
    path = tmp_path_factory.mktemp("hostile") / "hostile.db"
    incidents = [fired(str(n), label, pool=label, alert=label) for n, label in enumerate(HOSTILE)]
    rows = [{"instance": label, "pool": label, "labels": {"zone": label}} for label in HOSTILE]
    fleet_database(path, rows, incidents)
    with Store.open(path) as store:
        for one, label in zip(incidents, HOSTILE, strict=True):
            store.acknowledge(one.id, label[:100], END, comment=label[:500])
    return path


@pytest.fixture(scope="module")
def client(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    web = web_at(database, END, tmp_path_factory.mktemp("web"))
    yield browser(web, **ANA)
    web.database.close()


def _paths(page: Page) -> Iterator[str]:
    """The page for each label: of its incident, its server, its pool."""
    if "{" not in page.path:
        yield page.path
        return
    for number, label in enumerate(HOSTILE):
        text = quote(label[:1000], safe="")
        names = {"incident_id": str(number) * 12, "target": TargetKey(label[:1000], "0").text}
        path = page.path.replace(":path", "").replace(":name", "")
        for name in ("incident_id", "target", "pool", "week"):
            path = path.replace(f"{{{name}}}", quote(names.get(name, ""), safe="") or text)
        assert "{" not in path, "name the new variable here"
        yield path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_hostile_labels_are_text(client: TestClient, page: Page) -> None:
    for path in _paths(page):
        answer = client.get(path)
        assert answer.status_code in (200, 400, 404), (path[:80], answer.text[:300])
        assert [text for text in _NEVER if text in answer.text] == [], path[:80]
        assert "set-cookie: x" not in str(answer.headers).lower()
        assert len(answer.text) < 150_000, path[:80]
    # what looks like a template is shown as it was written
    assert "{{ 7 * 7 }}" in client.get("/fleet").text


def test_a_database_that_nobody_may_write_is_read(database: Path, tmp_path: Path) -> None:
    """As a backup that is mounted read-only: nothing can be made beside it."""
    path = tmp_path / "kept" / "driftwatch.db"
    path.parent.mkdir()
    with sqlite3.connect(database) as connection:
        connection.execute(f"VACUUM INTO '{path}'")
    path.chmod(0o444)
    path.parent.chmod(0o555)
    web = web_at(path, END, tmp_path)
    try:
        there = browser(web)
        assert there.get("/fleet").status_code == 200
        answer = send(there, f"/incidents/{'0' * 12}", "note", ANA, comment="x")
        assert answer.status_code in ((503, 303) if os.geteuid() == 0 else (503,))
        assert there.get("/fleet").status_code == 200
    finally:
        web.database.close()
        path.parent.chmod(0o755)


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
    with pytest.raises(Exception, match="is read-only"):
        web.database.store(writes=False).note_action("note", "Ana", END)
