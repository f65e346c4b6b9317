"""Baselines in the web: the proposal of a target, accepting it once, what is refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import Recorded
from starlette.testclient import TestClient
from web_cases import ANA, BEARER, browser, form_token, web_at

from driftwatch.clock import ManualClock
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.collect.schema import Collected, Recording
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.run import Service
from driftwatch.store import Store

JSON = {"Accept": "application/json"}
# run_slow was slowed by 25 % then
SLOWED = (
    datetime(2026, 11, 21, 9, 9, 30, tzinfo=UTC),
    datetime(2026, 11, 21, 9, 22, 30, tzinfo=UTC),
)
_HIDDEN = re.compile(r'type="hidden" name="(of|since|until)" value="([^"]+)"')


class _Fast:
    """run_slow without its slowed minutes: nobody scraped then."""

    name, settle_seconds = "fast", 0.0

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def collect(self, since: datetime, until: datetime) -> Collected:
        all_of_it = self._recording.collect(since, until)
        slowed = pl.col("time").is_between(*SLOWED)
        return replace(all_of_it, scrapes=all_of_it.scrapes.filter(~slowed))

    def close(self) -> None:
        self._recording.close()


@pytest.fixture(scope="module")
def watched(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The database of a service that saw 30 minutes of a real server at its own speed."""
    recording = RecordingSource(shared_data / "vllm-0.32" / "run_slow")
    path = tmp_path_factory.mktemp("watched") / "d.db"
    first, last = recording.span()
    clock = ManualClock(first)
    with Store.open(path) as store:
        service = Service([_Fast(recording)], plan_of_rules(()), store, [], clock)
        while clock.now() < last:
            clock.advance(timedelta(minutes=15))
            service.tick_once()
        service.stop()
    return Recorded(path, clock.now(), "")


@pytest.fixture
def client(watched: Recorded, tmp_path: Path) -> Iterator[TestClient]:
    path = tmp_path / "own.db"
    shutil.copy(watched.path, path)
    web = web_at(path, watched.now, tmp_path)
    yield browser(web)
    web.database.close()


@pytest.fixture
def stored(client: TestClient, tmp_path: Path) -> Callable[[], Store]:
    """The database of the client."""
    return lambda: Store.open(tmp_path / "own.db", migrate=False)


def _view(client: TestClient, query: str = "") -> Any:
    answer = client.get(f"/baselines.json{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_proposal_is_accepted_once_with_its_audit(
    client: TestClient, stored: Callable[[], Store]
) -> None:
    before = _view(client)
    assert (before["rows"], before["without_names"]) == ([], ["host:8000"])
    page = client.get("/baselines?of=host:8000", headers=ANA).text
    data = dict(_HIDDEN.findall(page)) | {"form": form_token(page), "why": "quiet <b>"}
    answers = [client.post("/baselines/accept", data=data, headers=ANA) for _ in range(2)]
    assert [one.headers["location"] for one in answers] == [
        "/baselines?after=accepted",
        "/baselines?after=before",
    ]
    view = _view(client)
    (row,) = view["rows"]
    assert (row["of"], row["accepted_by"], row["why"]) == ("host:8000", "Ana", "quiet <b>")
    assert (row["has_load_model"], row["note"], view["without"]) == (True, None, 0)
    with stored() as store:
        (action,) = store.latest_actions(5)
    assert (action.action, action.subject, action.by, action.via, action.comment) == (
        *("accept baseline", row["baseline_id"], "Ana", "web", "quiet <b>"),
    )
    assert "quiet &lt;b&gt;" in client.get("/baselines").text


def test_the_proposal_is_that_of_the_command(client: TestClient) -> None:
    one = _view(client, "?of=host:8000")["proposed"]
    assert one["refusals"] == []
    assert "requests finished" in one["why"]
    assert not one["is_long_enough"]
    assert any("slow" in part["why"] or "not seen" in part["why"] for part in one["left_out"])


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        (("host:8000", "2026-11-21T09:00:00Z", "2026-11-21T09:04:00Z"), 409, "too little"),
        (("host:8000", "2026-11-21T09:04:00Z", "2026-11-21T09:00:00Z"), 409, "before it begins"),
        (("host:8000", "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"), 409, "no minute"),
        (("host:8001", "2026-11-21T08:48:00Z", "2026-11-21T09:06:00Z"), 404, "no target or pool"),
        (("host:8000", "2026-11-21T08:48:00", "2026-11-21T09:06:00Z"), 400, "since"),
    ],
)
def test_what_no_baseline_may_hold_is_refused(
    client: TestClient,
    stored: Callable[[], Store],
    fields: tuple[str, str, str],
    status: int,
    words: str,
) -> None:
    data = dict(zip(("of", "since", "until"), fields, strict=True))
    answer = client.post("/baselines/accept", data=data, headers=BEARER)
    assert (answer.status_code, words in answer.json()["message"]) == (status, True), answer.text
    with stored() as store:
        assert (store.baselines(), store.latest_actions(5)) == ([], [])


def test_an_unknown_name_lists_those_like_it_and_strangers_may_not_accept(
    client: TestClient,
) -> None:
    answer = client.get("/baselines?of=hots:8000", headers=JSON)
    assert answer.status_code == 404
    assert answer.json()["near"][0] == {"text": "host:8000", "path": "/baselines?of=host:8000"}
    page = client.get("/baselines?of=host:8000").text
    assert "<button>Accept" not in page
    data = {"of": "host:8000", "since": "2026-11-21T08:48:00Z", "until": "2026-11-21T09:06:00Z"}
    assert client.post("/baselines/accept", data=data).status_code == 403
    assert client.get("/baselines?size=1000000000").status_code == 400
