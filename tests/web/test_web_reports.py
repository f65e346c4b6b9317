"""The archive of weekly reports: each as a page, also one that another version wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from conftest import Recorded
from starlette.testclient import TestClient
from web_cases import browser

from driftwatch.report.figures import plots_of
from driftwatch.report.text import sections
from driftwatch.store import Store
from driftwatch.web.app import Web


@pytest.fixture
def client(web: Web, opened: Callable[[], Store], firing: Recorded) -> TestClient:
    """A client on a database with the week's report, one of hostile names, and one of another
    version.
    """
    with opened() as store:
        (week,) = store.report_weeks()
        document = store.report(week) or {}
        renamed = json.dumps(document).replace("tiny-llama", "<script>alert(1)</script>")
        store.write_report("2026-W46", json.loads(renamed), (), firing.now)
        store.write_report("2026-W40", {"summary": "of <b> before"}, (), firing.now)
    return browser(web)


def _view(client: TestClient, path: str) -> Any:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_archive_lists_the_newest_week_first(client: TestClient) -> None:
    view = _view(client, "/api/v1/reports")
    assert [row["week"] for row in view["rows"]] == ["2026-W47", "2026-W46", "2026-W40"]
    assert view["rows"][0]["title"] == "Week 47, Mon 16 – Sun 22 Nov 2026 UTC"
    assert view["newest"]
    assert client.get("/reports?size=1000000000").status_code == 400


def test_a_report_has_the_texts_of_its_document(client: TestClient) -> None:
    view = _view(client, "/api/v1/reports/2026-W47")
    html = unescape(client.get("/reports/2026-W47").text)
    for label, texts in sections(view["document"]):
        assert f">{label}<" in html or not texts
        assert all(text in html for text in texts)
    assert 'id="incidents"' in html and "BatchLimitBinding" in html
    assert view["before"]["path"] == "/reports/2026-W46"


def test_a_report_has_the_drawings_of_its_file(client: TestClient) -> None:
    document = _view(client, "/api/v1/reports/2026-W47")["document"]
    html = client.get("/reports/2026-W47").text
    assert plots_of(document)
    assert all(str(one.svg) in html for one in plots_of(document))
    assert html.index(">FOR YOU<") < html.index(">WHAT MOVED<") < html.index(">PAGES<")


def test_names_of_a_report_are_escaped(client: TestClient) -> None:
    html = client.get("/reports/2026-W46").text
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_a_report_of_another_version_shows_its_summary_and_why_no_more(client: TestClient) -> None:
    view = _view(client, "/api/v1/reports/2026-W40")
    assert view["reason"].startswith("another version")
    assert "of &lt;b&gt; before" in client.get("/reports/2026-W40").text


@pytest.mark.parametrize("week", ["2026-W45", "2026", "x" * 300, "..%2Fdriftwatch.db"])
def test_an_unknown_week_lists_those_near_it(client: TestClient, week: str) -> None:
    answer = client.get(f"/reports/{week}")
    assert answer.status_code == 404
    if week == "2026-W45":
        assert 'href="/reports/2026-W46"' in answer.text
