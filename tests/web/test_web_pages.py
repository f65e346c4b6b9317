"""The pages as their reader gets them: the fleet and an incident of a real service."""

from __future__ import annotations

from conftest import Recorded
from web_cases import browser

from driftwatch.web.context import Web


def test_the_fleet_shows_the_worst_first_and_why_something_is_unknown(
    web: Web, firing: Recorded
) -> None:
    client = browser(web)
    page = client.get("/fleet")
    assert page.status_code == 200
    view = client.get("/api/v1/targets").json()
    (row,) = view["rows"]
    assert (row["state"], row["incident"]) == ("firing", firing.incident_id)
    assert row["speed_at_equal_load_ratio"]["value"] is None
    assert row["speed_at_equal_load_ratio"]["reason"]
    assert f'href="/incidents/{firing.incident_id}"' in page.text


def test_an_incident_has_its_page_its_path_and_its_deliveries(web: Web, firing: Recorded) -> None:
    client = browser(web)
    page = client.get(f"/incidents/{firing.incident_id}")
    assert page.status_code == 200
    view = client.get(f"/api/v1/incidents/{firing.incident_id}").json()
    assert [one["receiver"] for one in view["deliveries"]] == ["oncall"]
    assert view["path"][0]["answer"] == "yes"
    assert client.get(f"/incidents/{firing.incident_id[:6]}").status_code == 200
