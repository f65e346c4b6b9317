"""driftwatch baseline on the database of a service that watched a real server, and on a file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from driftwatch.clock import ManualClock
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.collect.schema import Collected, Recording, Source
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.run import Service
from driftwatch.store import Store

Run = Callable[..., tuple[int, str, str]]
# run_slow: 22 min at its own speed, 12 min slowed by 25 %, 8 min recovered
GOOD = ("--from", "2026-11-21T08:48:00Z", "--to", "2026-11-21T09:06:00Z")
SLOWED_SPAN = (
    datetime(2026, 11, 21, 9, 9, 30, tzinfo=UTC),
    datetime(2026, 11, 21, 9, 22, 30, tzinfo=UTC),
)


class _Fast:
    """run_slow without its slowed minutes: nobody scraped then."""

    name, settle_seconds = "fast", 0.0

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def collect(self, since: datetime, until: datetime) -> Collected:
        found = self._recording.collect(since, until)
        slowed = pl.col("time").is_between(*SLOWED_SPAN)
        return replace(found, scrapes=found.scrapes.filter(~slowed))

    def close(self) -> None:
        self._recording.close()


def _watched(source: Source, span: tuple[datetime, datetime], path: Path) -> Path:
    clock = ManualClock(span[0])
    with Store.open(path) as store:
        service = Service([source], plan_of_rules(()), store, [], clock)
        while clock.now() < span[1]:
            clock.advance(timedelta(minutes=15))
            service.tick_once()
        service.stop()
    return path


@pytest.fixture(scope="module")
def watched(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a service without a pin that saw 30 minutes of a server at its own speed."""
    recording = RecordingSource(shared_data / "vllm-0.32" / "run_slow")
    path = tmp_path_factory.mktemp("watched") / "d.db"
    return _watched(_Fast(recording), recording.span(), path)


@pytest.fixture
def run(run: Run) -> Run:
    return lambda *words: run("baseline", *words)


@pytest.fixture
def db(watched: Path, tmp_path: Path) -> str:
    return str(shutil.copy(watched, tmp_path / "own.db"))


def _json(run: Run, *arguments: str, code: int = 0) -> Any:
    found, out, err = run(*arguments, "--json")
    assert found == code, err
    document = json.loads(out)
    assert document["schema_version"] == 1
    return document


def test_a_proposal_says_why_it_is_good_and_is_accepted_by_its_id(run: Run, db: str) -> None:
    (proposal,) = _json(run, "propose", "--db", db)["proposals"]
    assert proposal["name"] == "host:8000"
    assert not proposal["is_long_enough"]
    assert proposal["finished_requests"] > 9_000
    assert 0.5 < proposal["seen_ratio"] < 0.8
    assert "requests finished" in proposal["why"]
    code, out, _ = run("pin", proposal["id"], "--db", db, "--by", "ana")
    assert code == 0
    assert f"pinned {proposal['id']} host:8000" in out
    assert "with a baseline under 24 h, rules page 3 to 10 times as often as with 48 h" in out
    (pin,) = _json(run, "list", "--db", db)["pins"]
    assert pin["accepted_by"] == "ana"
    assert pin["why"] == proposal["why"]
    assert pin["load_model"] is not None
    shown = _json(run, "list", "host:8000", "--db", db)["pin"]
    assert shown["id"] == pin["id"]
    assert shown["load_model"]["coefficients"][0] > 0
    assert shown["fingerprint"]["identity"] == {"model_name": "tiny-llama"}
    assert shown["fingerprint"]["knobs"]["kv_cache_blocks"] == "8192"
    assert shown["reference"]["kind"] == "pin"
    assert shown["reference"]["reference_prompt_tokens_mean"] == pytest.approx(128, rel=0.03)
    assert shown["reference"]["reference_prompt_tokens_edges"][-1] == "+Inf"


@pytest.mark.slow
def test_a_slow_stretch_is_not_proposed_though_nothing_could_page(
    run: Run, shared_data: Path, tmp_path: Path
) -> None:
    """Without a pin no rule fires; its own past tells."""
    recording = RecordingSource(shared_data / "vllm-0.32" / "run_slow")
    path = _watched(recording, recording.span(), tmp_path / "slow.db")
    with Store.open(path) as store:
        assert store.incidents() == []
    # what is left are the minutes before the loss, without the last ones
    (proposal,) = _json(run, "propose", "--db", str(path))["proposals"]
    assert proposal["until"] <= "2026-11-21T09:10:00Z"
    assert {part["why"] for part in proposal["left_out"]} >= {"slower at equal load"}


def test_who_arms_is_listed_with_what_is_missing(run: Run, db: str) -> None:
    found = _json(run, "list", "--db", db)
    assert found["pins"] == []
    (one,) = found["arming"]
    assert one["instance"] == "host:8000"
    assert one["lacking"] is None
    assert "driftwatch baseline propose" in one["reason"]


def test_a_refused_window_is_pinned_where_a_person_says_why(run: Run, db: str) -> None:
    short = ("pin", "host:8000", *GOOD[:2], "--to", "2026-11-21T08:58:00Z", "--db", db)
    code, out, err = run(*short)
    assert (code, " of 20 minutes" in out, "--anyway --why" in err) == (1, True, True)
    assert run(*short, "--anyway")[0] == 2
    assert _json(run, "list", "--db", db)["pins"] == []
    code, out, _ = run(*short, "--anyway", "--why", "nothing else runs today")
    assert code == 0
    assert "no load model: " in out
    (pin,) = _json(run, "list", "--db", db)["pins"]
    assert pin["load_model"] is None
    assert pin["why"].startswith("nothing else runs today; pinned although too little")


def test_an_incident_is_left_out_of_a_proposal(run: Run, shared_data: Path) -> None:
    recording = ("--recording", str(shared_data / "vllm-0.32" / "run_slow"))
    (proposal,) = _json(run, "propose", *recording)["proposals"]
    reasons = {part["why"] for part in proposal["left_out"]}
    assert "incident SlowerAtEqualLoad" in reasons
    assert proposal["until"] <= "2026-11-21T09:10:00Z"


def test_names_that_nothing_answers_to(run: Run, db: str) -> None:
    assert run("propose", "nobody", "--db", db)[0] == 2
    code, _, err = run("pin", "0bad0bad", "--db", db)
    assert (code, "no proposal" in err) == (2, True)
    code, _, err = run("list", "x", "--db", db)
    assert (code, "no baseline 'x'" in err) == (2, True)
    code, _, err = run("pin", "host:8000", "--from", "2026-11-21T09:00Z", "--anyway", "--db", db)
    assert code == 2
    assert "--from and --to" in err
    assert "--anyway needs --why" in err
    code, _, err = run("pin", "0bad0bad", "--why", "caf\udce9", "--db", db)
    assert (code, "--why is not UTF-8" in err) == (2, True)


def test_an_empty_database_says_so(run: Run, tmp_path: Path) -> None:
    with Store.open(tmp_path / "empty.db"):
        pass
    assert run("propose", "--db", str(tmp_path / "empty.db"))[0] == 4
    code, out, err = run("list", "--db", str(tmp_path / "empty.db"))
    assert (code, out) == (0, "")
    assert "no baseline yet" in err
