"""The fleet and its pools: what comes first, what is unknown, parts of a long list, its cost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from made_incidents import with_values
from page_cases import CASES
from sqlalchemy import Engine, event
from starlette.testclient import TestClient
from web_cases import END, browser, fired, fleet_database, shown, web_at

from driftwatch.notify.headline import rendered
from driftwatch.notify.page import Phrases
from driftwatch.pipeline.build_page import build_page
from driftwatch.store.store import Store
from driftwatch.web.app import Web

WHY = "no baseline in use yet: 9 of 60 minutes of data"
ROWS: list[dict[str, Any]] = [
    {"instance": "good:8000", "pool": "calm"},
    {"instance": "fires:8000", "speed_at_equal_load_ratio": 0.8, "slower_at_equal_load": True},
    {"instance": "held:8000"},
    {"instance": "gone:8000", "scrapes": None},
    {
        "instance": "new:8000",
        "pool": "fresh",
        "slo_missed": None,
        "slower_at_equal_load": None,
        "speed_at_equal_load_ratio": None,
        "speed_unknown_reason": WHY,
        "ttft_in_target_10m_ratio": None,
    },
    {"instance": "full:8000", "pool": "tight", "binding_limit": "kv_cache"},
    {
        "instance": "late:8000",
        "pool": "late",
        "slo_missed": True,
        "ttft_in_target_10m_ratio": 0.6,
        "ttft_in_target_10m_upper_ratio": 0.7,
    },
]
INCIDENTS = [
    fired("a", "fires:8000"),
    fired("b", "held:8000"),
    fired("c", "full:8000", severity="ticket", pool="tight"),
]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Web:
    folder = tmp_path_factory.mktemp("fleet")
    fleet_database(folder / "fleet.db", ROWS, INCIDENTS)
    with Store.open(folder / "fleet.db") as store:
        store.acknowledge("b" * 12, "Ana", END)
    return web_at(folder / "fleet.db", END, folder)


@pytest.fixture(scope="module")
def client(web: Web) -> TestClient:
    return browser(web)


def test_pools_come_worst_first_and_what_is_unknown_has_its_reason(
    web: Web, client: TestClient
) -> None:
    view = shown(web, "/fleet")
    assert [(row.now.pool, row.state, row.count) for row in view["pools"]] == [
        ("p", "firing", 1),
        ("late", "target missed", 1),
        ("tight", "limit full", 1),
        ("fresh", "not judged", 1),
        ("calm", "in target", 1),
    ]
    html = unescape(client.get("/fleet").text)
    assert "nobody has acknowledged it" in html and f"unknown: {WHY}" in html
    assert html.count('class="spark"') == 2 * 5 and "<script" not in html
    assert "in target: 60\xa0% to 60\xa0%, unknown in 47 of 48 half hours</title>" in html
    assert "KV cache full" in html and ">0\xa0%<" not in html
    assert "<b>60–70\xa0%</b>" in html and ">2 open incidents</a>" in html


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("?state=no+data", ["gone"]),
        ("?state=limit+full", ["full"]),
        ("?q=HELD", ["held"]),
        ("?state=firing", ["fires"]),
        ("?state=acknowledged&size=1", ["held"]),
        ("?q=8000&size=2&page=2", ["gone", "late"]),
        ("?q=0&size=50&page=100000", ["fires", "held", "gone", "late", "full", "new", "good"]),
    ],
)
def test_filters_and_parts_stand_in_the_address(
    client: TestClient, query: str, names: list[str]
) -> None:
    answer = client.get(f"/fleet{query}")
    assert answer.status_code == 200
    assert re.findall(r"/targets/(\w+):8000", answer.text) == names


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?size=1000000000", "parameter size: must be less than or equal to 50"),
        ("?page=0", "parameter page: must be greater than or equal to 1"),
        ("?stat=firing", "there is no parameter stat"),
        ("?state=fine", "parameter state: must be one of: firing, acknowledged, silenced, no data"),
        ("?q=%00", "holds a NUL"),
    ],
)
def test_a_wrong_parameter_is_named(client: TestClient, query: str, words: str) -> None:
    answer = client.get("/fleet" + query)
    assert answer.status_code == 400 and words in unescape(answer.text)


def test_old_data_is_shown_with_its_age(tmp_path: Path, web: Web) -> None:
    later = web_at(web.database.place.path, END + timedelta(hours=2), tmp_path)  # type: ignore[union-attr]
    client = browser(later)
    for path in ("/fleet", "/fleet?q=late", "/pools/late", "/targets/late:8000"):
        html = client.get(path).text
        # no colour of a state of now
        assert "Old data, of 03:00 UTC (2 h ago)" in html and not re.search(r"state s-\w", html)
        assert "2 h ago" in html and ">target missed<" in html, path
    assert "Old data" in client.get("/incidents").text
    assert "Old data" not in browser(web).get("/fleet").text
    fleet_database(tmp_path / "empty.db", [])
    html = browser(web_at(tmp_path / "empty.db", END, tmp_path)).get("/fleet").text
    assert "driftwatch run" in html and "No minute is stored yet" in html


def test_a_notice_is_no_answer_of_a_server_and_advises_nothing_beside_a_page(
    tmp_path: Path,
) -> None:
    notice = fired("9", "fires:8000", severity="notice", rule="Lengths")
    words = Phrases(problem=("prompts are longer",), advice="Nothing to do: no limit is full")
    page = build_page(CASES["budget"].finding, notice, "firing", END)
    page = rendered(
        page.model_copy(update={"severity": "notice", "phrases": words, "advice": None})
    )
    notice = with_values(notice, page=page)
    alone = tmp_path / "alone.db"
    fleet_database(alone, [{"instance": "fires:8000"}], [notice])
    there = web_at(alone, END, tmp_path)
    assert shown(there, "/targets/fires:8000")["incident"] is None
    html = browser(there).get("/incidents").text
    assert "prompts are longer. Nothing to do: no limit is full</a>" in html
    assert ">firing incidents</a>" in browser(there).get("/fleet?state=firing").text
    html = browser(there).get("/pools/p").text
    assert "</span> p: 1 of 1 server</h1>" in html and "of 03:00 UTC, since" in html
    both = tmp_path / "both.db"
    new = {"speed_at_equal_load_ratio": None, "speed_unknown_reason": WHY}
    rows = [{"instance": f"{name}:8000", **new} for name in ("fires", "other")]
    fleet_database(both, rows, [notice, fired("a", "fires:8000")])
    there = web_at(both, END, tmp_path)
    assert "prompts are longer</a>" in browser(there).get("/incidents").text
    assert shown(there, "/targets/fires:8000")["incident"].severity == "page"
    html = browser(there).get("/pools/p").text + browser(there).get("/targets/fires:8000").text
    assert "prompts are longer" in html and "Nothing to do" not in html
    assert f"Speed unknown on 2 servers: {WHY}." in html
    assert browser(there).get("/pools/p").text.count(WHY) == 1


def test_a_pool_has_the_answer_of_its_worst_incident(web: Web, client: TestClient) -> None:
    html = unescape(client.get("/pools/p").text)
    assert '<pre class="command" tabindex="0">driftwatch explain p</pre>' in html
    view = shown(web, "/pools/p")
    assert [one.instance for one in view["rows"]] == ["fires:8000", "held:8000", "gone:8000"]
    assert (view["row"].state, view["first"].id) == ("firing", "a" * 12)
    assert ">firing<" in html and ">acknowledged<" in html and "No baseline is in force" in html
    assert "<title>24 h of its speed: 80\xa0% to 80\xa0%, " in html
    assert "<title>24 h of requests in target: 100\xa0% to 100\xa0%, " in html


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
    rows = [
        {"instance": f"gpu-{n:05}.example.com:8000", "pool": f"p{n // 20}"} for n in range(2000)
    ]
    rows[79]["ttft_in_target_10m_ratio"] = 0.98
    incidents = [
        fired(f"{n:x}", rows[20 * n]["instance"], id=f"{n:012x}", pool=f"p{n}") for n in range(60)
    ]
    fleet_database(tmp_path / "large.db", rows, incidents)
    client = browser(web_at(tmp_path / "large.db", END, tmp_path))
    for path in ("/fleet", "/fleet?q=gpu&size=50"):
        assert len(client.get(path).content) < 100_000
    for path, most in (("/fleet?page=2", 10), ("/pools/p3", 22), ("/fleet?q=gpu", 12)):
        with counted() as statements:
            assert client.get(path).status_code == 200
        assert len(statements) <= most, statements  # BEGIN too
    worst = re.findall(r"/targets/gpu-(\d+)", client.get("/pools/p3").text)
    assert worst[:3] == ["00060", "00079", "00061"]
