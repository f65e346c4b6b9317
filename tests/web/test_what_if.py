"""A what-if from the form to its answer, through the real simulation in its own process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Recorded
from starlette.testclient import TestClient
from web_cases import ANA, BEARER, BEN, browser, send, web_at

from driftwatch.store import Store
from driftwatch.web.context import Web


def _answered(client: TestClient, location: str) -> dict[str, Any]:
    """The forecast, once it is not waited for any more."""
    for _ in range(1400):
        view: dict[str, Any] = client.get(f"{location}.json").json()
        if view["progress"] is None:
            return view
        time.sleep(0.1)
    raise AssertionError("a forecast is answered or given up within two minutes")


def test_a_forecast_is_made_in_the_background_and_keeps_its_address(
    copied: Recorded, tmp_path: Path, opened: Callable[[], Store]
) -> None:
    page = f"/incidents/{copied.incident_id}"
    web = web_at(copied.path, copied.now, tmp_path)
    with browser(web) as client:
        first = send(client, page, "what-if", ANA, max_num_seqs="64", replicas="2")
        assert first.status_code == 303
        location = first.headers["location"]
        waiting = client.get(location)
        assert '<meta http-equiv="refresh" content="2">' in waiting.text
        assert "No answer yet: being simulated" in waiting.text
        again = send(client, page, "what-if", ANA, max_num_seqs="32")
        assert again.status_code == 409
        assert "a forecast that you asked for is not answered yet" in again.text
        second = send(client, page, "what-if", BEN, max_num_seqs="32")
        assert "1 forecast is simulated first" in client.get(second.headers["location"]).text
        view = _answered(client, location)
    forecast = view["forecast"]
    assert (forecast["state"], forecast["by"], forecast["target"]) == (
        "answered",
        "Ana",
        "host:8000",
    )
    today, seqs, replicas, *_ = forecast["rows"]
    assert (today["label"], seqs["label"], replicas["label"]) == (
        "today's settings",
        "max_num_seqs 64",
        "2 replicas",
    )
    assert today["in_target_ratio"] < 0.6 < 0.99 < seqs["in_target_ratio"]
    assert seqs["capacity_requests_per_second"] > today["capacity_requests_per_second"]
    # another process has the same answer at the same address, and no form to send again
    with browser(web_at(copied.path, copied.now, tmp_path)) as client:
        page_of_answer = client.get(location).text
        assert (
            "refresh" not in page_of_answer
            and "Forecast with max_num_seqs 64: 40 % → 100 % of " in page_of_answer
        )
        incident = client.get(page).text
        assert f'href="{location}"' in incident and "max_num_seqs 64 or 2 replicas, Ana" in incident
        # of Ben's the process ended: it waits for another process, and then says that it is gone
        lost = client.get(second.headers["location"]).text
        assert "if another process of driftwatch web has it" in lost
    with opened() as store:
        asked = [one for one in store.actions(copied.incident_id) if one.action == "forecast"]
    assert [(one.by, one.comment, one.via) for one in asked] == [
        ("Ana", "max_num_seqs 64 or 2 replicas", "web"),
        ("Ben", "max_num_seqs 32", "web"),
    ]


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ("", 409, "nothing to try: give one setting at least"),
        ("max_num_seqs=0", 400, "field max_num_seqs: "),
        ("max_num_seqs=1e9", 400, "field max_num_seqs: "),
        ("replicas=many", 400, "field replicas: "),
        ("max_num_sqs=8", 400, "did you mean max_num_seqs?"),
        ("max_num_seqs=64&max_num_batched_tokens=32", 409, "vLLM refuses to start"),
    ],
)
def test_what_cannot_be_tried_is_refused(
    web: Web, firing: Recorded, fields: str, status: int, text: str
) -> None:
    client = browser(web)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    address = f"/incidents/{firing.incident_id}/what-if"
    answer = client.post(address, content=fields, headers=BEARER | form)
    assert (answer.status_code, text in answer.text) == (status, True), answer.text


def test_a_time_limit_ends_the_process_and_the_page_says_so(
    copied: Recorded, tmp_path: Path
) -> None:
    web = web_at(copied.path, copied.now, tmp_path, limit_seconds=1)
    with browser(web) as client:
        page = f"/incidents/{copied.incident_id}"
        location = send(client, page, "what-if", ANA, max_num_seqs="64").headers["location"]
        view = _answered(client, location)
        assert view["forecast"]["state"] == "no forecast"
        assert view["forecast"]["answers"] == ["the simulation took longer than 1 s"]
        # and the person may ask again
        assert send(client, page, "what-if", ANA, replicas="2").status_code == 303


def test_an_unknown_forecast_leads_to_the_incident(web: Web, firing: Recorded) -> None:
    answer = browser(web).get(f"/incidents/{firing.incident_id}/what-if/20260101000000-00000000")
    assert answer.status_code == 404
    assert f'href="/incidents/{firing.incident_id}"' in answer.text
