"""driftwatch baseline on the database of a service that watched a real server, and on a file."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from command_cases import Run
from fakes.manual_clock import ManualClock
from made_incidents import incident_of

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.run import Service
from driftwatch.store.store import Store, TickRecord

# run_slow: 22 min at its own speed, 12 min slowed by 25 %, 8 min recovered
GOOD = ("--from", "2026-11-21T08:48:00Z", "--to", "2026-11-21T09:06:00Z")
SLOWED_AT = datetime(2026, 11, 21, 9, 9, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def watched(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a service without a baseline, after 22 minutes of a steady server."""
    recording = RecordingSource(shared_data / "vllm-0.32" / "run_slow")
    path = tmp_path_factory.mktemp("watched") / "d.db"
    clock = ManualClock(recording.span()[0])
    with Store.open(path) as store:
        service = Service([recording], plan_of_rules(()), store, [], clock)
        for until in (SLOWED_AT - timedelta(minutes=7), SLOWED_AT):
            clock.advance(until - clock.now())
            service.tick_once()
        service.stop()
    return path


@pytest.fixture
def run(run: Run) -> Run:
    return lambda *words: run("baseline", *words)


@pytest.fixture
def db(watched: Path, tmp_path: Path) -> str:
    return str(shutil.copy(watched, tmp_path / "own.db"))


def _json(run: Run, *arguments: str) -> Any:
    code, out, err = run(*arguments, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["schema_version"] == 2
    return document


def test_a_proposal_is_accepted_by_the_name_of_its_server(run: Run, db: str) -> None:
    found = _json(run, "list", "--db", db)
    assert found["in_force"] == []
    (proposal,) = found["proposals"]
    assert (proposal["name"], proposal["lacking"]) == ("host:8000", None)
    assert (proposal["finished_requests"] > 9_000, proposal["seen_ratio"]) == (True, 1.0)
    code, out, err = run("accept", "host:8000", "--db", db, "--by", "ana")
    assert (code, " of host:8000: " in out) == (0, True)
    assert "with a baseline under 24 h, rules page 3 to 10 times as often as with 48 h" in err
    (one,) = _json(run, "list", "--db", db)["in_force"]
    assert one["accepted_by"] == "ana" and "requests finished" in one["why"]
    assert (one["since"], one["until"]) == (proposal["since"], proposal["until"])
    assert one["load_model"]["coefficients"][0] > 0
    assert one["fingerprint"]["identity"] == {"model_name": "tiny-llama"}
    assert one["reference"]["reference_prompt_tokens_mean"] == pytest.approx(128, rel=0.03)
    assert one["reference"]["reference_prompt_tokens_edges"][-1] == "+Inf"
    assert run("list", "--db", db)[1].split("\t")[-1] == "in force\n"


def test_a_refused_window_is_accepted_where_a_person_says_why(run: Run, db: str) -> None:
    short = ("accept", "host:8000", *GOOD[:2], "--to", "2026-11-21T08:58:00Z", "--db", db)
    code, out, err = run(*short)
    assert (code, " of 20 minutes" in out, "--anyway --why" in err) == (1, True, True)
    assert run(*short, "--anyway")[0] == 2
    assert _json(run, "list", "--db", db)["in_force"] == []
    code, out, _ = run(*short, "--anyway", "--why", "nothing else runs today")
    assert (code, "no load model: " in out) == (0, True)
    (one,) = _json(run, "list", "--db", db)["in_force"]
    assert one["load_model"] is None
    assert one["why"].startswith("nothing else runs today; accepted although too little")


def test_an_incident_is_left_out_of_a_proposal(run: Run, shared_data: Path, db: str) -> None:
    notice = incident_of(servers=("host:8000", "b:1"), at=SLOWED_AT, severity="notice")
    longer = notice.model_copy(update={"id": "c" * 12, "rule": "RetuneAdvised"})
    with Store.open(Path(db)) as store:
        store.commit_tick(TickRecord(until=SLOWED_AT, incidents=(longer,)))
        (proposal,) = _json(run, "list", "--db", db)["proposals"]
        assert proposal["lacking"] is None  # lengths that moved bar no baseline for them
        store.commit_tick(TickRecord(until=SLOWED_AT, incidents=(notice,)))
    code, out, _ = run("accept", "host:8000", *GOOD, "--db", db)
    assert (code, "0 of 20 minutes fit: incident X in " in out) == (1, True)
    assert "no minute is fit for a baseline" in run("list", "host:8000", "--db", db)[1]
    recording = ("--recording", str(shared_data / "vllm-0.32" / "run_slow"))
    (proposal,) = _json(run, "list", *recording)["proposals"]
    assert "incident SlowerAtEqualLoad" in {part["why"] for part in proposal["left_out"]}
    assert proposal["until"] <= "2026-11-21T09:10:00Z"
    assert "--baseline 2026-11-21T" in run("list", *recording)[1]


def test_names_that_nothing_answers_to(run: Run, db: str, tmp_path: Path) -> None:
    code, _, err = run("list", "nobody", "--db", db)
    assert (code, "no baseline, server or pool 'nobody'" in err) == (2, True)
    code, _, err = run("accept", "0bad0bad", "--db", db)
    assert (code, "'0bad0bad' names no server or pool" in err) == (2, True)
    code, _, err = run("accept", "host:8000", "--from", "2026-11-21T09:00Z", "--anyway", "--db", db)
    assert code == 2 and "--from and --to" in err and "--anyway needs --why" in err
    code, _, err = run("accept", "0bad0bad", "--why", "caf\udce9", "--db", db)
    assert (code, "--why is not UTF-8" in err) == (2, True)
    with Store.open(tmp_path / "empty.db"):
        pass
    assert run("list", "--db", str(tmp_path / "empty.db"))[0] == 4
