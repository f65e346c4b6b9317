"""The pages of rules: how loud each was, what it fires on, what mutes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest
from conftest import Recorded
from operation_cases import every_state
from web_cases import browser

from driftwatch.backtest.stored_result import version_of
from driftwatch.settings.time_intervals import NamedIntervals
from driftwatch.store import Store
from driftwatch.web.context import Web

NIGHTS = {
    "name": "nights",
    "time_intervals": [
        {
            "times": [{"start_time": "00:00", "end_time": "24:00"}],
            "weekdays": ["monday:friday", "saturday"],
            "days_of_month": ["-3:-1", "20:28"],
            "months": ["june", "november:december"],
            "years": [2026],
            "location": "Europe/Berlin",
        }
    ],
}


@pytest.fixture
def loud(web: Web, opened: Callable[[], Store], firing: Recorded) -> Web:
    """A database with pages of one rule, two of them marked, and a mute window."""
    with opened() as store:
        every_state(store, firing.now)
        store.mark("1" * 12, "useful", by="Ana", at=firing.now)
        store.mark("8" * 12, "not useful", by="Ben", at=firing.now)
    nights = NamedIntervals.model_validate(NIGHTS)
    rules = tuple(
        replace(rule, mute_time_intervals=("nights",))
        if rule.alert == "BatchLimitBinding"
        else rule
        for rule in web.plan.rules
    )
    return replace(web, plan=replace(web.plan, rules=rules, time_intervals={"nights": nights}))


def _view(web: Web, path: str) -> Any:
    answer = browser(web).get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_loudest_rule_comes_first_with_its_marks_and_budget(loud: Web) -> None:
    view = _view(loud, "/rules.json")
    first, last = view["rows"][0], view["rows"][-1]
    assert first["rule"] == "BatchLimitBinding"
    # the recorded one and three of the eight; two were silent, one is pending, the resolved one
    # fired less than four weeks ago
    assert first["tally"] | {"last_firing_at": None} == {
        "pages": 4,
        "tickets": 1,
        "notices": 0,
        "quiet": 2,
        "useful": 1,
        "not_useful": 1,
        "unmarked": 2,
        "last_firing_at": None,
    }
    allowed = 0.25 * 1 * 28 / (365.25 / 12)
    assert view["budget_pages"] == pytest.approx(allowed)
    assert first["budget_share"] == pytest.approx(1 / allowed)
    assert first["mutes"] == [
        {
            "name": "nights",
            "holds": True,
            "times": [
                "00:00 to 24:00, monday to friday, saturday, day -3 to -1 of the month, "
                "day 20 to 28 of the month, june, november to december, 2026 Europe/Berlin"
            ],
        }
    ]
    assert (last["is_on"], last["rule"]) == (False, "ThroughputDown")
    assert "holds now" in browser(loud).get("/rules").text


def test_only_what_fired_in_the_weeks_counts(loud: Web, firing: Recorded) -> None:
    later = replace(loud, clock=type(loud.clock)(firing.now + timedelta(days=8)))  # type: ignore[call-arg]
    assert _view(later, "/rules.json?weeks=1")["tally"]["pages"] == 0
    assert _view(later, "/rules.json?weeks=2")["tally"]["pages"] == 4
    assert browser(loud).get("/rules?weeks=1000000000").status_code == 400
    assert browser(loud).get("/rules?size=1000000000").status_code == 400


def test_without_a_target_there_is_no_budget_and_the_page_says_why(
    loud: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    from driftwatch.web.fleet_minutes import Fleet

    monkeypatch.setattr(type(loud.fleet), "current", lambda *_: Fleet())
    view = _view(loud, "/rules.json")
    assert view["budget_pages"] is None
    assert {one["budget_reason"] for one in view["rows"]} == {"no target is stored yet"}


def test_an_alert_has_a_page_with_each_of_its_rules(loud: Web) -> None:
    view = _view(loud, "/rules/LengthDrift.json")
    assert len(view["rules"]) == 4
    assert all("It has no verdict unless" in "\n".join(one["lines"]) for one in view["rules"])
    page = browser(loud).get("/rules/BatchLimitBinding").text
    assert "It ends when any of these holds" in page
    assert "/incidents?rule=BatchLimitBinding" in page


def test_a_rule_shows_its_last_backtest_and_whether_it_is_of_this_version(
    loud: Web, opened: Callable[[], Store], firing: Recorded
) -> None:
    page = browser(loud).get("/rules/BatchLimitBinding").text
    assert "over the database keeps its result here" in page
    (rule,) = (one for one in loud.plan.rules if one.alert == "BatchLimitBinding")
    of_rule = {
        "version": version_of(rule),
        "incidents": 3,
        "per_server_month": 0.07,
        "undetermined_ratio": 0.12,
    }
    result = {
        "at": firing.now.isoformat(),
        "since": (firing.now - timedelta(days=30)).isoformat(),
        "until": firing.now.isoformat(),
        "servers": 46,
        "minutes_with_data": 1440,
        "rules": {rule.id: of_rule},
    }
    with opened() as store:
        store.keep_backtest(orjson.dumps(result))
    page = browser(loud).get("/rules/BatchLimitBinding").text
    assert "3 pages, 0.07 a server and month: 46 servers, 24 h of data" in page
    assert "no verdict in 12 % of these minutes" in page and "was changed" not in page
    with opened() as store:
        store.keep_backtest(orjson.dumps(result | {"minutes_with_data": 1439}))
    assert "3 pages: 46 servers" in browser(loud).get("/rules/BatchLimitBinding").text
    later = replace(rule, for_seconds=600.0)
    plan = replace(loud.plan, rules=(later,))
    changed = browser(replace(loud, plan=plan)).get("/rules/BatchLimitBinding").text
    assert "before this rule was changed" in changed
    (unjudged,) = _view(loud, "/rules/EngineStuck.json")["rules"]
    assert unjudged["backtest"] is None


def test_an_unknown_rule_lists_those_of_a_name_like_it(loud: Web) -> None:
    answer = browser(loud).get("/rules/batchlimitbindin", headers={"Accept": "application/json"})
    assert answer.status_code == 404
    assert answer.json()["near"][0]["path"] == "/rules/BatchLimitBinding"
    assert browser(loud).get("/rules/%3Cscript%3E").status_code == 404
