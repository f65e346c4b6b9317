"""The API: what four pages show, as JSON; it reads, and its errors are JSON."""

from __future__ import annotations

from conftest import Recorded
from web_cases import ANA, browser, view_of

from driftwatch.web.app import PAGES, Web


def test_it_has_targets_incidents_and_reports(web: Web, firing: Recorded) -> None:
    client, week = browser(web), "2026-W47"
    pages_of = {
        "/targets": "/fleet",
        "/incidents": "/incidents",
        f"/incidents/{firing.incident_id}": f"/incidents/{firing.incident_id}",
        "/reports": "/reports",
        f"/reports/{week}": f"/reports/{week}",
    }
    for path, page in pages_of.items():
        answer = client.get(f"/api/v1{path}", headers=ANA)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == view_of(web, page), path
    assert sum(page.api is not None for page in PAGES) == len(pages_of)


def test_it_reads_and_its_errors_are_json(web: Web, firing: Recorded) -> None:
    client, path = browser(web), f"/api/v1/incidents/{firing.incident_id}"
    for answer, status in (
        (client.post(path, headers=ANA), 405),
        (client.get("/api/v1/incidents/zz"), 404),
        (client.get("/api/v1/nothing"), 404),
        (client.get("/api/v1/targets?size=0"), 400),
    ):
        assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert client.get("/api/v1/incidents/zz").json()["near"]
