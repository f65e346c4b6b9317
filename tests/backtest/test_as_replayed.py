"""A backtest of a store has the evidence, the incidents and the pages of its replay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from driftwatch.backtest.outcome import NO_MINUTES, StoredHistory, backtests
from driftwatch.backtest.report import PastPage, past_pages
from driftwatch.cli.history import plan_from
from driftwatch.cli.replay_summary import with_proposals
from driftwatch.collect.recordings import open_recording
from driftwatch.errors import NoVerdict
from driftwatch.evidence import COLUMNS
from driftwatch.fleet.generate import generate_compact
from driftwatch.fleet.scenario.file import scenario_named
from driftwatch.fleet.truth import CONFIGURATION, write_truth
from driftwatch.incidents.incident import Transition
from driftwatch.pipeline.explain import Window
from driftwatch.pipeline.plan import Plan
from driftwatch.service.configuration import plan_of
from driftwatch.service.replay import replay
from driftwatch.store.store import Store

KEY = ["instance", "engine", "end"]


@dataclass
class Replayed:
    """A store, what its replay did, and the backtest's view of it."""

    store: Store
    plan: Plan
    rows: pl.DataFrame
    transitions: list[Transition]

    @property
    def reach(self) -> tuple[datetime, datetime]:
        reach = self.store.minutes_reach()
        assert reach is not None
        return reach

    @property
    def history(self) -> StoredHistory:
        return StoredHistory(self.store, self.reach, self.plan)


def replayed(recording: Path, plan: Plan, baseline: Window | None = None) -> Replayed:
    source, store = open_recording(recording), Store.in_memory()
    plan = with_proposals(plan)
    outcomes = list(replay([source], source.span(), plan, store=store, baseline=baseline))
    rows = pl.concat(one.rows for one in outcomes if len(one.rows)).sort(KEY)
    return Replayed(store, plan, rows, [t for one in outcomes for t in one.transitions])


@pytest.fixture(scope="module")
def midnight(fleet: Path) -> Iterator[Replayed]:
    one = replayed(fleet, plan_of(fleet / "driftwatch.yaml"))
    with one.store:
        yield one


def pages(several: Iterable[PastPage]) -> list[PastPage]:
    """Pages without line 1: a backtest simulates no advice."""
    return [one.model_copy(update={"headline": ""}) for one in several]


def test_incidents_of_a_fleet_over_midnight_with_servers_that_go(midnight: Replayed) -> None:
    (result,) = backtests(midnight.history, [midnight.plan])
    names = {one.id: one.name for one in midnight.store.incidents()}  # as incidents prints them
    assert all(one.where == names[one.id] for one in result.pages)
    assert pages(result.pages) == pages(
        past_pages(midnight.transitions, midnight.store.incidents())
    )


@pytest.mark.slow
def test_incidents_of_a_scenario_with_its_baseline(tmp_path: Path) -> None:
    scenario = scenario_named("half-gone")
    generate_compact(scenario, 1, tmp_path, jobs=1)
    write_truth(scenario, 1, tmp_path)
    first = scenario.truth.baseline
    assert first is not None
    window = Window(*(scenario.start + timedelta(seconds=s) for s in (first.at, first.until)))
    one = replayed(tmp_path, plan_from(tmp_path / CONFIGURATION), window)
    (result,) = backtests(one.history, [one.plan])
    assert pages(result.pages) == pages(past_pages(one.transitions, one.store.incidents())) != []


@pytest.mark.parametrize("name", ["run_cap", pytest.param("run_slow", marks=pytest.mark.slow)])
def test_pages_of_real_servers(name: str, shared_data: Path) -> None:
    one = replayed(shared_data / "vllm-0.32" / name, plan_from(None))
    (result,) = backtests(one.history, [one.plan])
    expected = past_pages(one.transitions, one.store.incidents())
    assert expected
    for mine, other in zip(result.pages, expected, strict=True):
        # nothing is simulated: line 1 has what was seen, and not what to do
        assert other.headline.startswith(mine.headline.partition(". ")[0])
        # of the minute of a restart a store does not know what was before and what after it
        assert mine.resolved_at is not None and other.resolved_at is not None
        assert abs(mine.resolved_at - other.resolved_at) <= timedelta(minutes=2)
        same = {"headline": "", "resolved_at": None}
        assert mine.model_copy(update=same) == other.model_copy(update=same)


def test_rows_are_those_of_the_tick(midnight: Replayed) -> None:
    other = pl.concat(rows for _, rows in midnight.history.rows()).sort(KEY)
    assert other.select(KEY).equals(midnight.rows.select(KEY))
    for name in {column.name for column in COLUMNS} - {"seconds_since_last_token"}:
        one, same = midnight.rows[name], other[name]
        if one.dtype == pl.Float64:  # but for what rounding does
            near = (one - same).abs() <= 1e-3 * one.abs() + 1e-9
            assert (near.fill_null(value=False) | (one.is_null() & same.is_null())).all(), name
        else:
            assert one.equals(same, check_names=False), name


def test_who_was_there_and_a_span_without_minutes(midnight: Replayed) -> None:
    history, retired, sizes = midnight.history, [], set()
    for day, rows in history.rows():
        for one in history.stretches(day, rows):
            inside = rows.filter(pl.col("end").is_between(one.first, one.last, closed="right"))
            assert set(inside["instance"]) == {key.instance for key in one.targets}
            retired += one.retired.values()
            sizes.add(len(one.targets))
    assert (retired, sizes) == ([NO_MINUTES] * 2, {2, 3})
    before = tuple(midnight.reach[0] - timedelta(days=n) for n in (3, 2))
    with pytest.raises(NoVerdict) as error:
        StoredHistory(midnight.store, (before[0], before[1]), midnight.plan)
    assert error.value.help_text == "minutes reach from 2026-11-16 21:30 to 2026-11-17 01:29 UTC"
