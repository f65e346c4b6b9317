"""The fleet: what comes first, what is unknown, parts of a long list, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import Recorded
from sqlalchemy import Engine, event
from starlette.testclient import TestClient
from web_cases import ANA, browser, send, view_of, web_at
from web_fleet_cases import END, fired, fleet_database

from driftwatch.model import Slo
from driftwatch.pipeline.plan import Pool
from driftwatch.service.configuration import plan_of_rules
from driftwatch.web.app import Web

LEARNING = "no baseline in use yet: 9 of 60 minutes of data"
ROWS: list[dict[str, Any]] = [
    {"instance": "good:8000"},
    {"instance": "fires:8000", "speed_at_equal_load_ratio": 0.8, "slower_at_equal_load": True},
    {"instance": "taken:8000"},
    {"instance": "gone:8000", "scrapes": None},
    {"instance": "silent:8000", "scrapes": 0.0, "coverage_missing_inputs": "running_requests"},
    {
        "instance": "new:8000",
        "slo_missed": None,
        "slower_at_equal_load": None,
        "speed_at_equal_load_ratio": None,
        "speed_unknown_reason": LEARNING,
        "ttft_seconds_count": 3.0,
    },
    {"instance": "full:8000", "binding_limit": "kv_cache", "binding_margin_ratio": 0.0},
    {"instance": "late:8000", "slo_missed": True, "ttft_seconds_buckets": [20.0, 60.0, 100.0]},
    {"instance": "ticket:8000"},
]
INCIDENTS = [
    fired("a", "fires:8000"),
    fired("b", "taken:8000", acknowledged_at=END, acknowledged_by="Ana"),
    fired("c", "ticket:8000", severity="ticket"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    folder = tmp_path_factory.mktemp("fleet")
    fleet_database(folder / "fleet.db", ROWS, INCIDENTS)
    plan = replace(plan_of_rules(()), pools=(Pool("p", slo=Slo(1.0, None, 0.95)),))
    return browser(web_at(folder / "fleet.db", END, folder, plan=plan))


def listed(client: TestClient, query: str = "") -> list[str]:
    view = client.get(f"/api/v1/targets{query}").json()
    return [row["target"].removesuffix(":8000") for row in view["rows"]]


def test_the_worst_comes_first_and_what_is_unknown_has_its_reason(client: TestClient) -> None:
    view = client.get("/api/v1/targets").json()
    assert [(row["target"].removesuffix(":8000"), row["state"]) for row in view["rows"]] == [
        ("fires", "firing"),
        ("gone", "no data"),
        ("silent", "no data"),
        ("taken", "taken"),
        ("late", "target missed"),
        ("full", "limit full"),
        ("ticket", "ticket"),
        ("new", "not judged"),
        ("good", "in target"),
    ]
    assert {(one["name"], one["targets"]) for one in view["unknown"]} == {
        (LEARNING, 1),
        ("gone: running_requests", 1),
        ("nothing scraped in the last 10 min", 1),
    }
    row = {one["target"].removesuffix(":8000"): one for one in view["rows"]}
    assert row["late"]["in_target_ratio"]["value"] == 0.6
    assert row["new"]["in_target_ratio"] == {
        "value": None,
        "reason": "fewer than 20 requests to judge by, or a histogram without buckets",
        "upper": None,
    }
    assert row["new"]["speed_at_equal_load_ratio"]["reason"] == LEARNING
    assert row["taken"]["taken_by"] == "Ana"
    assert row["gone"]["speed_at_equal_load_ratio"]["value"] is None
    html = client.get("/fleet").text
    assert "Ana has it" in html and "nobody has it" in html and f"unknown: {LEARNING}" in html
    assert "<span>0 %</span>" not in html


@pytest.mark.parametrize(
    ("query", "first", "count"),
    [
        ("?state=unknown", "gone", 3),
        ("?state=limit+full", "full", 1),
        ("?q=TAKEN", "taken", 1),
        ("?q=p&size=2&page=2", "silent", 2),
        ("?size=200&page=100000", "fires", 9),
    ],
)
def test_filters_and_parts_stand_in_the_address(
    client: TestClient, query: str, first: str, count: int
) -> None:
    names = listed(client, query)
    assert (names[0], len(names)) == (first, count)
    assert client.get(f"/fleet{query}").status_code == 200


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?size=1000000000", "parameter size: Input should be less than or equal to 200"),
        ("?page=0", "parameter page: Input should be greater than or equal to 1"),
        ("?stat=firing", "there is no parameter stat; did you mean state?"),
        ("?state=fine", "there is no state 'fine'"),
        ("?q=a&q=b", "parameter 'q' stands there twice"),
        ("?q=a%00b", "parameter 'q' holds a NUL"),
        ("?q=" + "x" * 300, "parameter q: String should have at most 200 characters"),
    ],
)
def test_a_wrong_parameter_is_named(client: TestClient, query: str, words: str) -> None:
    answer = client.get(f"/api/v1/targets{query}")
    assert (answer.status_code, answer.json()["status"]) == (400, 400)
    assert words in answer.json()["message"]
    assert "Not understood" in client.get(f"/fleet{query}").text


def test_what_is_older_than_five_minutes_says_so(client: TestClient, tmp_path: Path) -> None:
    fleet_database(tmp_path / "old.db", ROWS[:1])
    web = web_at(tmp_path / "old.db", END + timedelta(minutes=6), tmp_path)
    late = browser(web)
    (row,) = late.get("/api/v1/targets").json()["rows"]
    paths = ("/fleet", row["pool_path"], row["target_path"], "/incidents")
    for path in paths:
        assert "6 min ago: does driftwatch run?" in late.get(path).text, path
        for state in ("in target", "as its baseline"):
            assert f'">{state}</span>' not in late.get(path).text, path
    assert "does driftwatch run?" not in client.get("/fleet").text
    view = late.get("/api/v1/targets").json()
    assert view["rows"][0]["state"] == "no data"
    assert view["unknown"][0]["name"] == "driftwatch run wrote no minute in the last 5 min"
    target = view_of(web, row["target_path"])
    assert (target["is_stale"], target["state"]) == (True, "no data")
    pool = view_of(web, row["pool_path"])
    assert pool["states"] == [{"state": "no data", "servers": 1}]


def test_the_first_screen_says_what_to_do_about_a_page_that_nobody_has(
    web: Web, firing: Recorded
) -> None:
    client = browser(web)
    (first,) = client.get("/api/v1/targets").json()["untaken"]
    assert first["path"] == f"/incidents/{firing.incident_id}"
    assert first["text"].startswith("host:8000: first token takes 2.5 s, all of it queueing.")
    send(client, first["path"], "acknowledge", ANA)
    assert client.get("/api/v1/targets").json()["untaken"] == []


def test_in_target_is_the_worse_of_both_latencies(tmp_path: Path) -> None:
    tpot = {
        "tpot_seconds_edges": [0.05, 0.1, float("inf")],
        "tpot_seconds_sum": 6.0,
        "tpot_seconds_count": 100.0,
    }
    slow, fast, alone = ([50.0, 100.0, 100.0], [100.0, 100.0, 100.0], None)
    rows = [
        {"instance": f"{name}:1", **tpot, "tpot_seconds_buckets": buckets}
        for name, buckets in (("slow", slow), ("fast", fast), ("alone", alone))
    ]
    fleet_database(tmp_path / "both.db", rows)
    plan = replace(plan_of_rules(()), pools=(Pool("p", slo=Slo(1.0, 0.05, 0.95)),))
    web = web_at(tmp_path / "both.db", END, tmp_path, plan=plan)
    for page in (view_of(web, "/fleet"), view_of(web, "/pools/p")):
        shares = {row["target"][:-2]: row["in_target_ratio"]["value"] for row in page["rows"]}
        assert shares == {"slow": 0.5, "fast": 1.0, "alone": 1.0}
        # of both the bound is the same one's: TTFT's is higher
        assert [row["in_target_ratio"]["upper"] for row in page["rows"]] == [None] * 3


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements that any database is sent meanwhile."""
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield statements
    event.remove(Engine, "before_cursor_execute", note)


def test_a_large_fleet_costs_few_statements_and_bytes(tmp_path: Path) -> None:
    rows = [{"instance": f"gpu-{n:05}.example.com:8000"} for n in range(2000)]
    incidents = [
        replace(fired("d", one["instance"]), id=f"{n:012x}", key=f"k{n}")
        for n, one in enumerate(rows[:500])
    ]
    fleet_database(tmp_path / "large.db", rows, incidents)
    client = browser(web_at(tmp_path / "large.db", END, tmp_path))
    first = client.get("/fleet?size=200")
    assert len(first.content) < 300_000
    with counted() as statements:
        client.get("/fleet?size=200&page=3")
    assert len(statements) <= 7, statements  # BEGIN too; no minute is read again
    with counted() as statements:
        client.get(f"/incidents/{incidents[0].id}")
    assert len(statements) <= 20, statements
