"""The recorded server on the loopback shows what the recording showed at that moment."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import requests

from driftwatch.testing.exposition_server import ReplayedExposition, read_pages

PAGES = [(100.0, "a 1\n"), (105.0, None), (110.0, "a 3\n")]


def test_the_page_of_the_moment() -> None:
    now = [0.0]
    with ReplayedExposition(PAGES, clock=lambda: now[0]) as server:
        seen = []
        for now[0] in (0, 100, 104.9, 105, 109.9, 110, 999):
            answer = requests.get(server.url, timeout=5)
            seen.append((answer.status_code, answer.text))
            assert server.ended == (now[0] >= 110)
        assert seen == [(200, "a 1\n")] * 3 + [(503, "")] * 2 + [(200, "a 3\n")] * 2
        assert requests.get(f"{server.address}/version", timeout=5).status_code == 404
        assert server.url == f"http://{server.instance}/metrics"


def test_a_server_that_is_down_closes_the_connection() -> None:
    with (
        ReplayedExposition(PAGES, clock=lambda: 106, when_down="drop") as server,
        pytest.raises(requests.ConnectionError),
    ):
        requests.get(server.url, timeout=5)


def test_recorded_time_runs_from_the_first_page_at_the_given_speed() -> None:
    with ReplayedExposition(PAGES, speed=0.0) as still:
        assert still.now() == 100.0
        assert not still.ended
    with ReplayedExposition(PAGES, speed=1e9) as fast:
        while not fast.ended:
            pass
        assert fast.page() == "a 3\n"


@pytest.mark.parametrize("pages", [[], PAGES[::-1]])
def test_pages_that_are_no_recording(pages: list[tuple[float, str | None]]) -> None:
    with pytest.raises(ValueError, match="in order of time"):
        ReplayedExposition(pages)


def test_failed_scrapes_have_no_page(tmp_path: Path) -> None:
    path = tmp_path / "scrapes.jsonl.gz"
    lines = [
        {"t": 1.5, "status": 200, "body": "a 1\n"},
        {"t": 2.5, "status": "exc", "body": "refused"},
        {"t": 3.5, "status": 500, "body": "oops"},
    ]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    assert read_pages(path) == [(1.5, "a 1\n"), (2.5, None), (3.5, None)]
