"""The archive of weekly reports: each as a page, also one that another version wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from starlette.testclient import TestClient
from web_cases import Recorded, browser

from driftwatch.report.html import as_html_body
from driftwatch.report.report import Report
from driftwatch.store.store import Store
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


def test_the_runbook_has_an_anchor_for_every_alert(web: Web) -> None:
    named = {"summary": "mine <b>", "runbook_url": "http://r"}
    mine = web.plan.rules[0].model_copy(update={"alert": "Mine", "annotations": named})
    rules = (*web.plan.rules, mine)
    html = browser(replace(web, plan=replace(web.plan, rules=rules))).get("/runbook").text
    for rule in rules:
        assert f'id="{rule.alert}"' in html and f'href="#{rule.alert}"' in html
    assert set(re.findall(r'href="#(\w+)"', html)) <= {*re.findall(r'id="(\w+)"', html)}
    # the steps of another alert stand with the alert that names them
    entry = html.partition('id="BatchLimitBinding"')[2].partition("</section>")[0]
    assert 'href="#BatchDrift"' in entry and "Restart the others, one at a time" in entry
    assert "mine &lt;b&gt;" in html and 'href="http://r"' in html and "](" not in html


def test_the_archive_and_each_of_its_reports(
    client: TestClient, opened: Callable[[], Store]
) -> None:
    html = client.get("/reports").text
    assert "Minutes of 2026-W47 are stored. This command" in html
    weeks = re.findall(r'href="/reports/([^"]+)"', html)
    assert weeks == ["2026-W47", "2026-W46", "2026-W40"]
    assert '>--html</span> <span class="w">report-2026-W47.html</span></pre>' in html
    with opened() as store:
        drawn = as_html_body(Report.model_validate(store.report("2026-W47")))
    assert drawn in client.get("/reports/2026-W47").text
    assert ">FOR YOU<" in drawn and "<svg" in drawn
    html = client.get("/reports/2026-W40").text
    assert "Another version of driftwatch" in html and "of &lt;b&gt; before" in html


def test_json_has_the_stored_documents(
    client: TestClient, firing: Recorded, opened: Callable[[], Store]
) -> None:
    with opened() as store:
        incident = store.incident(firing.incident_id).document()
        report = store.report("2026-W47")
    one = client.get(f"/api/v1/incidents/{firing.incident_id}").json()
    assert {**incident, "schema_version": one["schema_version"]} == one
    assert client.get("/api/v1/incidents?state=open").json()["rows"] == [incident]
    assert client.get("/api/v1/incidents?state=resolved").json()["rows"] == []
    rows = client.get("/api/v1/targets").json()["rows"]
    assert rows and all(row["pool"] == incident["pool"] for row in rows)
    weeks = client.get("/api/v1/reports").json()["rows"]
    assert [row["week"] for row in weeks] == ["2026-W47", "2026-W46", "2026-W40"]
    assert client.get("/api/v1/reports/2026-W47").json() == report
    lost = client.get("/api/v1/incidents/zz")
    assert (lost.status_code, lost.json()["status"]) == (404, 404)
    assert client.get("/api/v1/targets?colour=red").status_code == 400
