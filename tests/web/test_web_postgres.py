"""The pages on PostgreSQL: read, act once, and lose the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from web_cases import ANA, BEN, browser, send, web_at
from web_fleet_cases import END, fired, fleet_database

from driftwatch.store import Store
from driftwatch.web.app import PAGES
from tests.outbox import latest_actions

pytestmark = pytest.mark.postgres


def test_pages_and_forms_work_on_postgresql(postgres_url: str, tmp_path: Path) -> None:
    one = fired("a", "gpu-1:8000")
    fleet_database(postgres_url, [{"instance": f"gpu-{n}:8000"} for n in range(3)], [one])
    web, page = web_at(postgres_url, END, tmp_path), f"/incidents/{one.id}"
    try:
        client = browser(web)
        rows = client.get("/api/v1/targets").json()["rows"]
        assert rows[0]["instance"] == "gpu-1:8000" and len(rows) == 3
        for path in ("/pools/p", "/targets/gpu-1:8000", "/fleet?state=firing", page):
            assert client.get(path, headers=ANA).status_code == 200, path
        for listed in (listed.path for listed in PAGES if "{" not in listed.path):
            assert client.get(listed, headers=ANA).status_code == 200, listed
        for who in (ANA, BEN):
            assert send(client, page, "acknowledge", who).status_code == 303
        assert "Ana acknowledged it" in client.get(page).text
        for _ in range(2):
            send(client, page, "note", BEN, comment="looks like the batch")
        for wrong in ("/incidents/zz", "/incidents/%00"):
            assert client.get(wrong, headers=BEN).status_code == 404, wrong
    finally:
        web.database.close()
    with Store.open(postgres_url) as store:
        assert [deed.action for deed in latest_actions(store, 5)] == ["note", "acknowledge"]
