"""``driftwatch web`` as it is started, and its pages on PostgreSQL."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from web_cases import ANA, BEN, END, TOKEN, Recorded, browser, fired, fleet_database, send, web_at

from driftwatch.store.store import Store
from driftwatch.web.app import PAGES
from tests.outbox import latest_actions

CONFIGURATION = """\
sources: [{pages: [http://127.0.0.1:9/metrics]}]
database: driftwatch.db
external_url: https://ops.example
web: {listen: "127.0.0.1:0", token_file: web.token}
"""


def test_it_serves_until_it_is_told_to_stop(copied: Recorded, tmp_path: Path) -> None:
    (tmp_path / "driftwatch.yaml").write_text(CONFIGURATION)
    (tmp_path / "web.token").write_text(TOKEN)
    command = [sys.executable, "-m", "driftwatch", "web"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stderr is not None
        line = next(text for text in process.stderr if "serving" in text)
        found = re.search(r"pages=(http://127\.0\.0\.1:[1-9]\d*/)", line)
        assert found is not None, line
        page = httpx.get(f"{found[1]}incidents/{copied.incident_id}", follow_redirects=True)
        assert page.status_code == 200 and "Sign in to act" in page.text
        assert "server" not in page.headers
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(20) == 0, rest
    assert "stopped" in rest and TOKEN not in line + rest


@pytest.mark.postgres
def test_pages_and_forms_work_on_postgresql(postgres_url: str, tmp_path: Path) -> None:
    one = fired("a", "gpu-1:8000")
    fleet_database(postgres_url, [{"instance": f"gpu-{n}:8000"} for n in range(3)], [one])
    web, page = web_at(postgres_url, END, tmp_path), f"/incidents/{one.id}"
    try:
        client = browser(web)
        for path in ("/pools/p", "/targets/gpu-1:8000", "/fleet?state=slower", page):
            assert client.get(path, headers=ANA).status_code == 200, path
        names = re.findall(r"/targets/gpu-(\d)", client.get("/fleet?q=gpu").text)
        assert names == ["1", "0", "2"]
        for listed in (listed.path for listed in PAGES if "{" not in listed.path):
            assert client.get(listed, headers=ANA).status_code == 200, listed
        codes = [send(client, page, "acknowledge", who).status_code for who in (ANA, BEN)]
        assert codes == [303, 409]
        assert "Ana acknowledged it" in client.get(page).text
        for _ in range(2):
            send(client, page, "note", BEN, comment="looks like the batch")
        for wrong in ("/incidents/zz", "/incidents/%00"):
            assert client.get(wrong, headers=BEN).status_code == 404, wrong
    finally:
        web.database.close()
    with Store.open(postgres_url) as store:
        assert [deed.action for deed in latest_actions(store, 5)] == ["note", "acknowledge"]
