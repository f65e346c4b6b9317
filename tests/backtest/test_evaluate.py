"""A rule set over kept evidence: the incidents that a replay has, to the minute."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from driftwatch.backtest.outcome import backtests
from driftwatch.backtest.stored import StoredHistory
from driftwatch.cli.options import plan_from
from driftwatch.cli.replay_summary import with_proposals
from driftwatch.collect.recordings import open_recording
from driftwatch.fleet.generate import generate_compact
from driftwatch.fleet.scenario.file import scenario_named
from driftwatch.fleet.truth import CONFIGURATION, write_truth
from driftwatch.incidents.incident import Transition
from driftwatch.pipeline.explain import Window
from driftwatch.pipeline.plan import Plan
from driftwatch.service.configuration import plan_of
from driftwatch.service.replay import replay
from driftwatch.store.store import Store

Told = tuple[str, str, str, datetime, datetime, str | None]


def told(transitions: Sequence[Transition]) -> list[Told]:
    """What fired and ended; an answer that came later is no event of an incident."""
    return [
        (t.incident.rule, t.incident.key, t.event, t.at, t.incident.started_at, t.reason)
        for t in transitions
        if t.event != "updated"
    ]


def compared(recording: Path, plan: Plan, baseline: Window | None = None) -> list[list[Told]]:
    """What a replay does, and what a backtest of its store does."""
    source = open_recording(recording)
    happened: list[Transition] = []
    with Store.in_memory() as store:
        outcomes = replay([source], source.span(), plan, store=store, baseline=baseline)
        expected = told([t for one in outcomes for t in one.transitions])
        reach = store.minutes_reach()
        assert reach is not None
        backtests(
            StoredHistory(store, reach, plan),
            [plan],
            each=lambda part: happened.extend(part.happened),
        )
    return [expected, told(happened)]


def test_a_fleet_over_midnight_with_servers_that_go(fleet: Path) -> None:
    plan = with_proposals(plan_of(fleet / "driftwatch.yaml"))
    expected, mine = compared(fleet, plan)
    assert mine == expected


@pytest.mark.slow
def test_a_scenario_with_its_baseline(tmp_path: Path) -> None:
    scenario = scenario_named("half-gone")
    recording = tmp_path / "recording"
    recording.mkdir()
    generate_compact(scenario, 1, recording, jobs=1)
    write_truth(scenario, 1, recording)
    plan = with_proposals(plan_from(recording / CONFIGURATION))
    first = scenario.truth.baseline
    assert first is not None
    start, length = scenario.start, timedelta(seconds=1)
    window = Window(start + first.at * length, start + first.until * length)
    expected, mine = compared(recording, plan, window)
    assert mine == expected
    assert expected
