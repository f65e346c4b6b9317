"""The list of incidents: which come first, what a filter leaves, what a long one costs."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from conftest import Recorded
from operation_cases import every_state
from web_cases import browser, view_of

from driftwatch.store import Store
from driftwatch.web.app import Web
from driftwatch.web.fleet import incident_state


@pytest.fixture
def listed(web: Web, opened: Callable[[], Store], firing: Recorded) -> Callable[..., Any]:
    """The list as JSON, on a database with an incident of every state."""
    with opened() as store:
        every_state(store, firing.now)
    client = browser(web)

    def get(**query: str) -> Any:
        answer = client.get("/api/v1/incidents", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return get


def test_an_incident_has_its_page_its_path_and_its_deliveries(web: Web, firing: Recorded) -> None:
    client = browser(web)
    page = client.get(f"/incidents/{firing.incident_id}")
    assert page.status_code == 200
    view = client.get(f"/api/v1/incidents/{firing.incident_id}").json()
    assert view["headline"].startswith("host:8000: first token takes 2.5 s")
    assert view["headline"] in unescape(page.text)
    assert [one["receiver"] for one in view["deliveries"]] == ["oncall"]
    assert view["path"][0]["answer"] == "yes"
    assert client.get(f"/incidents/{firing.incident_id[:6]}").status_code == 200


def test_a_change_that_is_advised_can_be_copied(listed: Callable[..., Any], web: Web) -> None:
    listed()
    change = view_of(web, "/incidents/" + "2" * 12)["change"]
    assert change["vllm_arguments"] == "--max-num-batched-tokens=2048"
    assert change["undo"] and "-" in change["helm_values_diff"]
    html = browser(web).get("/incidents/" + "2" * 12).text
    assert unescape(html).count("--max-num-batched-tokens=2048") >= 1


def _ids(view: Any) -> list[str]:
    return [one["incident_id"][0] for one in view["rows"]]


def test_open_ones_come_first_and_each_filter_leaves_its_own(
    listed: Callable[..., Any], firing: Recorded
) -> None:
    assert [one["state"] for one in listed()["rows"]] == [
        *("firing", "firing", "silenced", "silenced", "taken", "ticket", "notice"),
        *("pending", "resolved"),
    ]
    own = firing.incident_id[0]
    assert set(_ids(listed(pool="rag-8b"))) == set("1234567")
    assert _ids(listed(pool='a"b')) == ["8"]
    assert _ids(listed(severity="ticket")) == ["4"]
    assert _ids(listed(alert="Drift")) == _ids(listed(rule='Drift{signal="a"}')) == ["5"]
    assert set(_ids(listed(state="open"))) == {own, *"1234568"}
    assert _ids(listed(q="GPU-3:8000")) == ["3"]
    assert _ids(listed(q="10%_b:1/1")) == _ids(listed(q="10%_B")) == ["8"]
    assert _ids(listed(q="gpu- drift")) == ["5"]
    assert _ids(listed(q="6" * 8)) == ["6"]


def test_the_database_and_the_pages_have_the_same_words_for_a_state(
    listed: Callable[..., Any], opened: Callable[[], Store]
) -> None:
    with opened() as store:
        words = {one.id: incident_state(one) for one in store.open_incidents().values()}
    for word in set(words.values()):
        own = {id_ for id_, one in words.items() if one == word}
        assert {one["incident_id"] for one in listed(state=word)["rows"]} == own


def test_a_list_is_cut_in_parts_and_a_part_behind_the_last_is_the_last(
    listed: Callable[..., Any], web: Web
) -> None:
    first = listed(size="4")
    second = listed(size="4", page="2")
    assert (first["part"]["pages"], first["part"]["after"]) == (3, "/incidents?page=2&size=4")
    assert not set(_ids(first)) & set(_ids(second))
    assert (first["part"]["before"], second["part"]["before"]) == (None, "/incidents?size=4")
    assert listed(size="4", page="900")["part"]["page"] == 3
    client = browser(web)
    for wrong in ("size=1000000000", "page=0", "state=broken", "pols=x"):
        assert client.get(f"/incidents?{wrong}").status_code == 400


def test_the_page_escapes_what_it_lists(listed: Callable[..., Any], web: Web) -> None:
    listed()
    html = browser(web).get("/incidents?q=<script>&pool=<b>").text
    assert "<script>" not in html
    assert "<b>" not in html.split("<main")[1].split("</main>")[0].replace("<b>nobody</b>", "")
    assert "Ana &lt;b&gt;" in browser(web).get("/incidents").text
