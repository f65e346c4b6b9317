"""A report once a week, even over restarts, to every receiver once; and that of a real server."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fakes.manual_clock import ManualClock
from filled import fill
from report_cases import FLEET_WEEK, SLO, WEEK, fleet_recording

from driftwatch.cli.main import cli
from driftwatch.errors import UsageError
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.receivers.stdout import StdoutSender
from driftwatch.report.make import report_of
from driftwatch.report.report import Report
from driftwatch.report.week import week_held, week_named
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.report_material import (
    ReportSchedule,
    due_week,
    gather,
    make_due,
    schedule_of,
)
from driftwatch.service.run import Receiver, Service
from driftwatch.settings import Settings
from driftwatch.store.store import Store


@pytest.fixture(scope="session")
def fleet_plan() -> Plan:
    plan = plan_of_rules(())
    pool = Pool("chat-8b", slo=SLO, gpus_per_replica=1.0)
    return replace(plan, pools=(pool,), accepts_proposals=True)


@pytest.fixture(scope="session")
def fleet_database(tmp_path_factory: pytest.TempPathFactory, fleet_plan: Plan) -> Path:
    """A store that a fleet's recording was replayed into; not to be written to."""
    folder = tmp_path_factory.mktemp("report")
    source = fleet_recording(folder / "fleet")
    with Store.open(folder / "fleet.db") as store:
        fill(store, [source], source.span(), fleet_plan)
    source.close()
    return folder / "fleet.db"


@pytest.fixture
def fleet_store(fleet_database: Path, tmp_path: Path) -> Iterator[Store]:
    """A copy of it that a test may write to."""
    copy = tmp_path / "copy.db"
    shutil.copy(fleet_database, copy)
    with Store.open(copy) as store:
        yield store


MONDAY = FLEET_WEEK.end
AT_SEVEN = MONDAY + timedelta(hours=7, minutes=10)


@pytest.mark.parametrize(
    ("made", "now", "due"),
    [
        (["2026-W09"], AT_SEVEN - timedelta(minutes=1), None),
        (["2026-W09"], AT_SEVEN, "2026-W10"),
        (["2026-W10"], AT_SEVEN + timedelta(days=6), None),
        # one that was missed is made at the next start, and older ones are not
        (["2026-W09"], AT_SEVEN + timedelta(weeks=1, days=3), "2026-W11"),
        # the first start makes no report of long ago
        ([], AT_SEVEN + timedelta(hours=2), "2026-W10"),
        ([], AT_SEVEN + timedelta(days=3), None),
    ],
)
def test_due_once_a_week(made: list[str], now: datetime, due: str | None) -> None:
    found = due_week(made, now)
    assert (None if found is None else found.name) == due


RECEIVERS = [{"name": "desk", "stdout": {}}, {"name": "out", "stdout": {}}]


@pytest.mark.parametrize(
    ("configured", "receivers"),
    [
        ({"receivers": RECEIVERS, "report": {}}, ("desk", "out")),
        ({"receivers": RECEIVERS, "report": {"receivers": ["out"]}}, ("out",)),
        ({}, None),
    ],
)
def test_without_names_every_receiver_gets_it(
    configured: dict[str, Any], receivers: tuple[str, ...] | None
) -> None:
    schedule = schedule_of(Settings.model_validate(configured))
    assert (None if schedule is None else schedule.receivers) == receivers


def test_the_command_line(
    fleet_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def report(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["report", "--db", str(fleet_database), *arguments])

    html = report("--week", "2026-W10", "--html", "-")
    assert html.exit_code == 0, html.output
    assert html.stdout.startswith("<!DOCTYPE html>")
    kept = report("--html", "week.html")
    assert kept.stdout.startswith("Week 10, Mon 2 – Sun 8 Mar 2026 UTC. 1 pool, 2 servers\n")
    assert "data from Mon 2 Mar 14:00 to Mon 2 Mar 16:59 UTC only" in kept.stdout
    assert (tmp_path / "week.html").read_text() == html.stdout
    printed = report("--json")
    assert Report.model_validate_json(printed.stdout).document() == json.loads(printed.stdout)
    two = report("--html", "-", "--json")
    assert two.exit_code != 0 and "one form on standard output" in str(two.exception)
    empty = report("--week", "2020-W07")
    assert "not a minute of 2020-W07" in str(empty.exception)


def test_packed_and_rolled_up_minutes_tell_the_same_week(
    fleet_store: Store, fleet_plan: Plan
) -> None:
    first = report_of(gather(fleet_store, fleet_plan, FLEET_WEEK))
    rows = fleet_store.past(FLEET_WEEK.start, FLEET_WEEK.end)
    fleet_store.pack_minutes(FLEET_WEEK.end)
    again = report_of(gather(fleet_store, fleet_plan, FLEET_WEEK))
    (pool,), (packed,) = first.pools, again.pools
    assert pool.prompts.n == packed.prompts.n == rows["prompt_tokens_count"].sum()
    assert packed.missed.low == pytest.approx(pool.missed.low)
    assert first.moved[0].what == "no token for 30 min"
    assert again.moved[0].what.startswith("no token for")


def test_every_receiver_gets_it_once_even_over_a_restart(
    fleet_store: Store, fleet_plan: Plan
) -> None:
    said = {name: io.StringIO() for name in ("desk", "out")}
    schedule = ReportSchedule(receivers=tuple(said), external_url="https://ops.example/")
    clock = ManualClock(AT_SEVEN - timedelta(minutes=20))
    receivers = [
        Receiver(name, ("page",), StdoutSender(name, json=True, stream=stream))
        for name, stream in said.items()
    ]

    def service() -> Service:
        return Service([], fleet_plan, fleet_store, receivers, clock, reports=schedule)

    first = service()
    first.make_reports()
    assert fleet_store.report_weeks() == []
    clock.set(AT_SEVEN)
    first.make_reports()
    first.stop()
    # it stops before the report is out; the next process sends it, and makes no other
    second = service()
    second.make_reports()
    assert fleet_store.report_weeks() == [FLEET_WEEK.name]
    sent = second.deliver_once()
    assert sorted((a.receiver, a.event, a.result) for a in sent) == [
        ("desk", "report", "sent"),
        ("out", "report", "sent"),
    ]
    assert second.deliver_once() == []
    second.stop()
    told, other = (json.loads(stream.getvalue()) for stream in said.values())
    assert told == other == fleet_store.report(FLEET_WEEK.name)
    assert told["summary"].startswith(f"Report {FLEET_WEEK.name}: ")
    assert told["links"]["driftwatch"] == f"https://ops.example/reports/{FLEET_WEEK.name}"
    lines = {line["label"]: line["text"] for line in told["lines"]}
    assert lines["MOVED"].startswith("chat-8b-1:8000, no token for")
    # a week without a minute has none
    later = AT_SEVEN + timedelta(weeks=3)
    assert make_due(fleet_store, fleet_plan, schedule, later) is None


@pytest.mark.parametrize("text", ["2026-47", "2026-W54", "W47", "2026-W00", "2027-W53"])
def test_a_week_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--week"):
        week_named(text)


@pytest.mark.parametrize(
    ("days", "name"),
    [((0, 8), "2026-W47"), ((-1, 7), "2026-W47"), ((-5, 3), "2026-W46"), ((-4, 4), "2026-W47")],
)
def test_a_stretch_is_reported_by_the_week_that_it_holds(days: tuple[int, int], name: str) -> None:
    first, last = (WEEK.start + timedelta(days=n, seconds=30) for n in days)
    assert week_held(first, last).name == name
