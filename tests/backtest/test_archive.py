"""Archive evidence: the rows that a replay has, however it was computed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from driftwatch.backtest.archive import Archive
from driftwatch.backtest.archive_identity import identity_of
from driftwatch.backtest.archive_roster import joined_up
from driftwatch.backtest.archive_writer import keep
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.recordings import open_recording
from driftwatch.collect.schema import Collected, Recording
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.reference import no_reference
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import CAPACITY
from driftwatch.pipeline.state import CAPACITY_REASON, Outcome
from driftwatch.service.configuration import plan_of
from driftwatch.service.replay import replay

_OF_CAPACITY = (*CAPACITY, CAPACITY_REASON)


def replayed(recording: Path, plan: Plan) -> list[Outcome]:
    source = open_recording(recording)
    return list(replay([source], source.span(), plan))


def rows_of(outcomes: Sequence[Outcome]) -> pl.DataFrame:
    rows = pl.concat(one.rows.hstack(one.judged) for one in outcomes if len(one.rows))
    return rows.drop(_OF_CAPACITY, strict=False).sort("instance", "engine", "end")


def every_row(kept: Archive) -> pl.DataFrame:
    rows = [kept.rows(day, kept.columns(day)) for day in kept.days]
    return pl.concat(rows).sort("instance", "engine", "end")


def kept_of(recording: Path, plan: Plan, folder: Path, **options: object) -> Archive:
    source = open_recording(recording)
    return keep([source], source.span(), plan, folder, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plan(fleet: Path) -> Plan:
    return plan_of(fleet / "driftwatch.yaml")


@pytest.fixture(scope="module")
def outcomes(fleet: Path, plan: Plan) -> list[Outcome]:
    return replayed(fleet, plan)


@pytest.fixture(scope="module")
def kept(fleet: Path, plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return kept_of(fleet, plan, tmp_path_factory.mktemp("kept"))


def test_rows_and_roster_are_those_of_a_replay(kept: Archive, outcomes: list[Outcome]) -> None:
    rows, wanted = every_row(kept), rows_of(outcomes)
    assert rows.equals(wanted.select(rows.columns))
    assert set(wanted.columns) == set(rows.columns)
    assert rows["inputs_missing"].any() and not rows["ever_seen"].all()
    stretches = joined_up(stretch for day in kept.days for stretch in kept.roster(day))
    assert stretches == joined_up(s for one in outcomes for s in one.stretches)
    reasons = [why for stretch in stretches for why in stretch.retired.values()]
    assert len(reasons) == 2, stretches


@pytest.mark.slow
def test_how_it_was_split_changes_nothing(
    kept: Archive, fleet: Path, plan: Plan, tmp_path: Path
) -> None:
    """Resumed in the middle of the second day, in other strides."""
    source = open_recording(fleet)
    first, last = source.span()
    stride = timedelta(minutes=37)
    for until in (first + timedelta(hours=1), last - timedelta(hours=1), last):
        again = keep([source], (first, until), plan, tmp_path, stride=stride)
    assert every_row(again).equals(every_row(kept))
    assert [again.roster(day) for day in again.days] == [kept.roster(day) for day in kept.days]


def test_what_is_kept_is_not_read_again(fleet: Path, plan: Plan, tmp_path: Path) -> None:
    asked = Asked(open_recording(fleet))
    _, last = asked.span()
    first = last - timedelta(hours=2)
    keep([asked], (first, last), plan, tmp_path)
    assert asked.reads
    asked.reads.clear()
    assert keep([asked], (first, last), plan, tmp_path).days
    assert not asked.reads
    # an hour less of the same days is there, an hour that was not there is not the first day's
    keep([asked], (first, last - timedelta(hours=1)), plan, tmp_path)
    assert not asked.reads
    keep([asked], (first, last + timedelta(hours=1)), plan, tmp_path)
    assert min(asked.reads) >= datetime.fromisoformat("2026-11-17T00:00:00+00:00")


class Asked:
    """A recording that notes from when on it was read."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.name, self.settle_seconds = recording.name, recording.settle_seconds
        self.reads: list[datetime] = []

    def collect(self, since: datetime, until: datetime) -> Collected:
        self.reads.append(since)
        return self._recording.collect(since, until)

    def span(self) -> tuple[datetime, datetime]:
        return self._recording.span()

    def next_after(self, time: datetime) -> datetime | None:
        return self._recording.next_after(time)

    def identity(self) -> dict[str, str]:
        return {"name": self.name}

    def close(self) -> None:
        self._recording.close()


def test_evidence_of_other_settings_is_computed_again_and_the_note_says_what_differs(
    kept: Archive, fleet: Path, plan: Plan
) -> None:
    budget = replace(plan.detection, false_episodes_per_server_month=2.0)
    source = open_recording(fleet)
    first, _ = source.span()
    span, root = (first, first + timedelta(minutes=20)), kept.folder.parent
    other = keep([source], span, replace(plan, detection=budget), root)
    assert other.folder != kept.folder
    assert other.notes == (
        f"evidence in {kept.folder} differs in settings.detection: driftwatch computes it again",
    )
    # rules decide nothing of it
    rules = tuple(replace(rule, for_seconds=2 * rule.for_seconds) for rule in plan.rules)
    same = keep([source], span, replace(plan, rules=rules, simulations=0), root)
    assert (same.folder, same.notes) == (kept.folder, ())
    # of those that read other metrics the loss of a metric is judged as before, as a note says
    fewer = tuple(rule for rule in plan.rules if rule.alert in ("CoverageLost", "EngineStuck"))
    less = keep([source], span, replace(plan, rules=fewer), root)
    assert less.folder == kept.folder
    assert less.notes[0].startswith("rules on coverage_missing_seconds miss the metrics of ")
    assert ", generation_tokens, " in less.notes[0]
    stuck = tuple(rule for rule in plan.rules if rule.alert == "EngineStuck")
    assert keep([source], span, replace(plan, rules=stuck), root).notes == ()
    pools = tuple(replace(pool, receivers=("oncall",)) for pool in plan.pools)
    assert pools
    assert keep([source], span, replace(plan, pools=pools), root).folder == kept.folder
    secret = PrometheusAsker("http://me:hunter2@h:9090/prom?token=hunter2")
    names = identity_of(
        [PrometheusSource(secret, selector={})], first, plan, Baselines(), no_reference()
    )
    assert "hunter2" not in json.dumps(names) and "h:9090/prom" in json.dumps(names)
