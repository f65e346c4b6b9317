"""Other regions on the fleet page: theirs as they were last, whatever their webs do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from web_cases import served
from web_fleet_cases import END, fired, fleet_database

from driftwatch.database_place import place_of
from driftwatch.service.configuration import plan_of_rules
from driftwatch.settings.web import WebSettings
from driftwatch.testing.loopback import Answer, LoopbackServer, Request
from driftwatch.web import regions as regions_of
from driftwatch.web.context import Web
from driftwatch.web.server import web_of

ROWS: list[dict[str, Any]] = [
    {"instance": "a:1", "labels": {"model_name": "rag"}},
    {"instance": "b:1", "labels": {"model_name": "rag"}, "slower_at_equal_load": True},
    {"instance": "c:1", "labels": {"model_name": "chat"}},
]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions_of, "EACH_SECONDS", 0.1)


def _web(folder: Path, **urls: str) -> Web:
    """A region of its own that looks at others."""
    folder.mkdir()
    fleet_database(folder / "d.db", [{"instance": "own:1", "pool": "own"}])
    listed = [{"name": name, "url": url} for name, url in urls.items()]
    own = WebSettings.model_validate({"regions": listed})
    return web_of(None, plan_of_rules(()), place_of(folder / "d.db"), own=own)


@contextmanager
def _process(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A real ``driftwatch web`` on a fleet of two pools."""
    folder.mkdir()
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    fleet_database(folder / "driftwatch.db", ROWS, [fired("1", "c:1")], end=end)
    command = [sys.executable, "-m", "driftwatch", "web", "--listen", "127.0.0.1:0"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(
        command, cwd=folder, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            assert process.stderr is not None
            line = next(text for text in process.stderr if "serving" in text)
            address = re.search(r"pages=(http://[^/]+)/", line)
            assert address is not None, line
            yield process, address[1]
        finally:
            process.kill()


def _rows(address: str) -> dict[str, dict[str, Any]]:
    began = time.monotonic()
    answer = httpx.get(f"{address}/api/v1/targets")
    assert time.monotonic() - began < 2.0  # no page waits for a region
    assert answer.status_code == 200
    assert [row["target"] for row in answer.json()["rows"]] == ["own:1"]
    return {row["name"]: row for row in answer.json()["regions"]}


def _until(address: str, true: Callable[[dict[str, dict[str, Any]]], Any]) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while not true(rows := _rows(address)):
        assert time.monotonic() < deadline, rows
        time.sleep(0.1)
    return rows


def test_a_region_that_is_killed_stays_with_its_last_data_and_each_stands_alone(
    tmp_path: Path,
) -> None:
    with _process(tmp_path / "us") as (process, us):
        web = _web(tmp_path / "eu", us=us)
        with served(web) as eu:
            (row,) = _until(eu, lambda rows: rows["us"]["answered_at"]).values()
            assert row["url"] == f"{us}/fleet"
            assert (row["targets"], row["silent_since"], row["reason"]) == (3, None, None)
            pools = {one["name"]: (one["state"], one["url"]) for one in row["pools"]}
            assert pools == {
                "rag": ("slower", f"{us}/pools/rag"),
                "chat": ("firing", f"{us}/pools/chat"),
            }
            assert [one["name"] for one in row["pools"]] == ["chat", "rag"]
            page = httpx.get(f"{eu}/fleet", headers={"Accept": "text/html"}).text
            assert f'href="{us}/pools/rag"' in page and "not reachable" not in page
            # the link is cut: theirs is dead, ours is as before
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            # the question under way when it is killed ends otherwise; the next one is refused
            refused = "connection refused"
            (dead,) = _until(eu, lambda rows: rows["us"]["reason"] == refused).values()
            assert dead["answered_at"] is not None
            assert dead["silent_since"] >= dead["answered_at"]
            assert (dead["targets"], dead["pools"]) == (3, row["pools"])
            page = httpx.get(f"{eu}/fleet", headers={"Accept": "text/html"}).text
            assert "not reachable</span> since" in page and "Data of" in page


class Other(LoopbackServer):
    """A region that answers what it was told."""

    answer = Answer(200, "{}")

    def judge(self, request: Request) -> Answer:
        assert request.path.startswith("/api/v1/targets?size=200")
        return self.answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(200, "{}"), "answers with something else than a fleet"),
        (Answer(200, "nonsense"), "answers with something else than a fleet"),
        (Answer(302, "", {"Location": "http://169.254.169.254/"}), "answers 302, a redirect to"),
        (Answer(503, "busy"), "answers 503"),
        (Answer(200, "x" * 4_000_001), "page refused: "),
        (Answer(0, hang=True), "no answer for 0.3 s"),
    ],
    ids=["other JSON", "no JSON", "redirect", "error", "too large", "hangs"],
)
def test_whatever_a_region_answers_the_page_comes_at_once_and_says_why(
    answer: Answer, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = regions_of.Bounds(read_seconds=0.3, body_bytes=regions_of.BOUNDS.body_bytes)
    monkeypatch.setattr(regions_of, "BOUNDS", bounds)
    with Other() as other:
        other.answer = answer
        with served(_web(tmp_path / "eu", us=other.address)) as eu:
            (row,) = _until(eu, lambda rows: rows["us"]["silent_since"]).values()
            assert row["reason"].startswith(reason)
            assert (row["answered_at"], row["targets"], row["pools"]) == (None, None, [])
            page = httpx.get(f"{eu}/fleet", headers={"Accept": "text/html"}).text
            assert "No data since this page was started" in page


def test_labels_of_another_region_mean_no_harm_here(tmp_path: Path) -> None:
    script = "<script>alert(1)</script>"
    fleet = {
        "schema_version": 1,
        "end": (END - timedelta(minutes=1)).isoformat(),
        "is_stale": False,
        "targets": 1,
        "states": [{"name": script, "targets": 1}],
        "untaken": [{"text": f"FIRING {script}", "path": "javascript:alert(1)"}],
        "pools": [f'"><img src=x>{script}', "javascript:alert(1)"],
        "rows": [{"pool": "javascript:alert(1)", "state": "of a newer release"}],
        "more": "of a newer release",
    }
    with Other() as other:
        other.answer = Answer(200, httpx.Request("GET", "http://x", json=fleet).content.decode())
        with served(_web(tmp_path / "eu", us=other.address)) as eu:
            (row,) = _until(eu, lambda rows: rows["us"]["answered_at"]).values()
            page = httpx.get(f"{eu}/fleet", headers={"Accept": "text/html"}).text
    assert row["pools"][0]["state"] == "of a newer release"  # it may be the worst
    assert "<script" not in page and "<img" not in page
    assert 'href="javascript' not in page


def test_two_regions_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="us"):
        WebSettings.model_validate({"regions": [{"name": "us", "url": "http://x"}] * 2})
