"""Doctor in the web: what the database alone can say, as the command says it."""

from __future__ import annotations

import html
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from web_cases import browser

from driftwatch.web.context import Web


def _view(web: Web, query: str = "") -> Any:
    answer = browser(web).get(f"/doctor.json{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_checks_name_what_is_missing_what_it_costs_and_what_fixes_it(web: Web) -> None:
    view = _view(web)
    assert (view["targets"], view["checked_targets"], view["is_stale"]) == (1, 1, False)
    assert (view["is_ready"], view["counts"]["ok"] > 0) == (False, True)
    missing = [row for row in view["rows"] if row["status"] == "MISSING"]
    assert "BatchDrift" in {name for row in missing for name in row["disables"]}
    assert all(row["fix"] for row in missing)
    learning = [row for row in view["rows"] if row["status"] == "LEARNING"]
    assert "SlowerAtEqualLoad" in {name for row in learning for name in row["disables"]}
    assert all(row["status"] != "ok" for row in view["rows"])
    page = html.unescape(browser(web).get("/doctor").text)
    assert "Not checked here" in page
    assert all(text in page for text in view["not_checked"])


def test_checks_of_one_status_are_listed_alone(web: Web) -> None:
    view = _view(web, "?status=ok&size=2")
    assert {row["status"] for row in view["rows"]} == {"ok"}
    assert view["part"]["rows"] == view["counts"]["ok"]
    assert browser(web).get("/doctor?status=fine").status_code == 400
    assert browser(web).get("/doctor?size=1000000000").status_code == 400


def test_old_scrapes_are_called_old_and_without_a_target_there_is_no_verdict(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    from driftwatch.web.fleet_minutes import Fleet

    later = replace(web, clock=type(web.clock)(web.clock.now() + timedelta(hours=1)))  # type: ignore[call-arg]
    assert _view(later)["is_stale"]
    monkeypatch.setattr(type(web.fleet), "current", lambda *_: Fleet())
    view = _view(web)
    assert (view["is_ready"], view["rows"]) == (None, [])
    assert view["verdict"] == "no verdict: no target is stored"


def test_of_a_large_fleet_some_targets_of_each_pool_are_checked(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    from driftwatch.model import TargetKey
    from driftwatch.web.fleet_minutes import Fleet

    (target,) = web.fleet.current(web.database.reader()).targets.values()
    keys = [TargetKey("host:8000", "0"), *(TargetKey(f"gpu-{n}:8000", "0") for n in range(900))]
    many = {key: replace(target, key=key, pool=f"p{n % 3}") for n, key in enumerate(keys)}
    monkeypatch.setattr(type(web.fleet), "current", lambda *_: Fleet(targets=many))
    view = _view(web)
    assert view["targets"] == 901
    assert 50 <= view["checked_targets"] <= 60
    assert "of 901 targets were checked" in browser(web).get("/doctor").text
