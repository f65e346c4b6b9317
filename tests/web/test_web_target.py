"""A target's page: answer, lengths, signals on one axis, limits, ranges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import operation_cases
from conftest import Recorded
from web_cases import browser, view_of, web_at
from web_fleet_cases import END, fired, fleet_database

from driftwatch.notify.page import Servers
from driftwatch.pipeline.plan import Pool
from driftwatch.service.configuration import plan_of_rules
from driftwatch.web.app import Web
from driftwatch.web.page import pool_path, target_path

PATH = "/targets/host:8000"


def test_a_target_says_what_explain_says(web: Web, firing: Recorded) -> None:
    client = browser(web)
    html = client.get(PATH)
    assert html.status_code == 200
    view = view_of(web, PATH)
    assert (view["state"], view["no_data"], view["is_newest"]) == ("firing", None, True)
    assert view["answer"]["path"] == f"/incidents/{firing.incident_id}"
    (cap,) = [one for one in view["limits"] if one["name"] == "max_num_seqs"]
    assert cap["is_full"] and cap["margin"] == "0 %" and "queue" in cap["remark"]
    assert [one["length"] for one in view["lengths"]] == ["prompt_tokens", "generation_tokens"]
    for one in view["lengths"]:
        assert one["baseline_share"] is None and "no baseline" in one["text"]
        assert abs(sum(one["share"]) - 1) < 1e-9
    assert view["signals"]["without_usual"] == "no baseline is in force"
    assert any(one["tokens_per_second_per_gpu"] is None for one in view["signals"]["spans"])
    assert view["signals"]["episodes"][0]["link"]["path"] == view["answer"]["path"]


def test_an_incident_of_other_servers_of_its_pool_is_not_its_answer(tmp_path: Path) -> None:
    """The pool's incident names one server of three; the fleet and each page agree on whose."""
    pool = {"pool": "p"}
    one = operation_cases.fired(END, "a", key="pool", extent=1)
    assert one.page is not None
    named = Servers(concerned=1, of=3, first=("a:8000",))
    page = one.page.model_copy(update={"servers": named, "labels": pool})
    speaker = replace(one, target=pool, page=page)
    member = fired("b", "b:8000", state="pending", firing_at=None, part_of="pool")
    rows = [{"instance": name} for name in ("a:8000", "b:8000", "c:8000")]
    fleet_database(tmp_path / "pool.db", rows, [speaker, member])
    plan = replace(plan_of_rules(()), pools=(Pool("p"),))
    web = web_at(tmp_path / "pool.db", END, tmp_path, plan=plan)
    client = browser(web)
    listed = {one["target"]: one["state"] for one in client.get("/api/v1/targets").json()["rows"]}
    assert listed == {"a:8000": "firing", "b:8000": "firing", "c:8000": "as its baseline"}
    waits = [one["waits"] for one in client.get("/api/v1/incidents").json()["rows"]]
    assert waits[-1] == "in the incident of its pool"
    for target, state in listed.items():
        view = view_of(web, f"/targets/{target}")
        assert view["state"] == state
        assert (view["answer"] is not None) == (state == "firing")
        # what is open in its pool is named either way
        assert [one["path"] for one in view["incidents"]] == ["/incidents/" + "a" * 12]
        assert (">firing</span>" in client.get(f"/targets/{target}").text) == (state == "firing")


def test_a_range_is_in_the_address_and_one_without_data_says_so(web: Web) -> None:
    client = browser(web)
    newest = view_of(web, PATH)["until"]
    view = view_of(web, PATH, **{"from": "2001-01-01T00:00", "to": "2001-01-01T03:00Z"})
    assert view["no_data"].startswith(
        "No scrape of it from 2001-01-01 00:00 UTC to 2001-01-01 03:00"
    )
    assert (view["signals"], view["lengths"], view["limits"]) == (None, [], [])
    assert (view["state"], view["answer"]) == (None, None)
    again = client.get(view["data"]["path"])
    assert again.status_code == 200 and "No scrape of it" not in again.text
    assert newest[:13].replace(":", "%3A") in view["data"]["path"]


def test_a_range_that_is_none_is_refused(web: Web) -> None:
    client = browser(web)
    for params in (
        {"from": "2026-01-02", "to": "2026-01-01"},
        {"from": "2020-01-01", "to": "2026-01-01"},
        {"from": "yesterday"},
        {"since": "2026-01-01"},
    ):
        assert client.get(PATH, params=params).status_code == 400, params
    answer = client.get(PATH, params={"from": "2026-01-02", "to": "2026-01-01"})
    assert "is no range</p>" in answer.text


def test_a_name_with_any_character_has_a_page(tmp_path: Path) -> None:
    names = ["a\nb:8000", "a\tb/\x7f?#:8000"]
    fleet_database(tmp_path / "names.db", [{"instance": name} for name in names])
    plan = replace(plan_of_rules(()), pools=(Pool("new\nline"),))
    client = browser(web_at(tmp_path / "names.db", END, tmp_path, plan=plan))
    fleet = client.get("/fleet").text
    for name in names:
        assert f'href="{target_path(name)}"' in fleet
        assert client.get(target_path(name)).status_code == 200
    assert client.get(pool_path("new\nline")).status_code == 200


def test_an_unknown_target_lists_names_like_it(web: Web) -> None:
    answer = browser(web).get("/targets/hots:8000")
    assert answer.status_code == 404
    assert f'<li><a href="{PATH}">host:8000</a></li>' in answer.text
