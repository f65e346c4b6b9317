"""The service opens, keeps and closes a verification of a real restart; the command tells it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from verify_cases import DATA

from driftwatch.cli.main import cli
from driftwatch.clock import Clock
from driftwatch.collect.recordings import open_recording
from driftwatch.model import TargetKey
from driftwatch.notify.verification_line import verification_line
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.run import Receiver, Service
from driftwatch.store.advice import AdviceRow
from driftwatch.store.store import Store
from driftwatch.verify.verification import VERIFICATION
from tests.outbox import write_advice

TICK = timedelta(minutes=7)


class _At(Clock):
    """A clock that stands where it is put."""

    def __init__(self, now: Any) -> None:
        self._now = now

    def now(self) -> Any:
        return self._now

    def set(self, now: Any) -> None:
        self._now = now


@pytest.fixture(scope="module")
def database(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """run_cap through the service, stopped and started again between the restart and the verdict.

    Nothing is replayed for a page here; what a page would have advised is put beside it.
    """
    path = tmp_path_factory.mktemp("verify") / "driftwatch.db"
    plan = replace(plan_of_rules(()), rules=())
    first, last = open_recording(DATA / "run_cap").span()
    advice = {
        "recommendation": {
            "action": "change",
            "knob": "max_num_seqs",
            "from_value": 8.0,
            "to_value": 32.0,
            "forecast": {"ttft_seconds": 0.03, "today": {"ttft_seconds": 2.0}},
        },
        "slo": None,
    }
    clock = _At(first)
    no_receivers: list[Receiver] = []
    for since, until in ((first, first + timedelta(minutes=21)), (None, last)):
        with Store.open(path) as store:
            if since is not None:
                at = first + timedelta(minutes=12)
                write_advice(store, AdviceRow("a1", "host:8000", "0", "default", at, advice))
            source = open_recording(DATA / "run_cap")
            service = Service([source], plan, store, no_receivers, clock)
            while clock.now() < until:
                clock.set(min(clock.now() + TICK, until))
                service.tick_once()
            service.stop()
    return path


def _run(*words: object) -> Any:
    return CliRunner().invoke(cli, [str(word) for word in words])


def test_it_is_kept_with_its_forecast_over_a_restart_of_the_service(database: Path) -> None:
    with Store.open(database) as store:
        assert store.open_verifications() == []
        (kept,) = store.verifications(*_ever(store))
    assert kept.verdict == "PASS", kept.reason
    document = VERIFICATION.document(kept)
    assert document["change"]["what"]["max_num_seqs"][1] == "at least 41"
    assert document["effects"][0]["forecast"] == 0.03
    line = verification_line(document, None)
    assert line.startswith("PASS 2026-11-21 08:4")
    assert "matched traffic: TTFT mean" in line
    assert "(forecast 0.03)" in line


def test_the_list_and_one(database: Path) -> None:
    listed = _run("verify", "--db", database)
    assert listed.exit_code == 0, listed.output
    (row,) = listed.stdout.splitlines()
    cells = row.split("\t")
    assert cells[1:5] == [
        "PASS",
        "2026-11-21T08:34:00Z",
        "host:8000",
        "max_num_seqs 8 (inferred) → at least 41",
    ]
    one = _run("verify", "host:8000", "--db", database)
    assert one.exit_code == 0
    assert one.stdout.startswith("PASS 2026-11-21 08:4")


def test_named_stretches_come_from_stored_minutes(database: Path) -> None:
    said = _run(
        *("verify", "--db", database, "--json"),
        *("--before", "2026-11-21T08:18Z..2026-11-21T08:33Z"),
        *("--after", "2026-11-21T08:36Z..2026-11-21T08:47Z"),
    )
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert found["verdict"] == "PASS"
    assert found["forecast"] is None
    assert found["effects"][0]["name"] == "e2e_seconds_mean"


def _ever(store: Store) -> tuple[Any, Any]:
    span = store.minutes_span(TargetKey("host:8000", "0"))
    assert span is not None
    return span[0] - timedelta(days=1), span[1] + timedelta(days=1)
