"""The pages of a backtest are those of a replay: leaf and line 1."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from driftwatch.backtest.outcome import backtests
from driftwatch.backtest.pages import PastPage, past_pages
from driftwatch.backtest.stored import StoredHistory
from driftwatch.cli.options import plan_from
from driftwatch.cli.replay_summary import with_proposals
from driftwatch.collect.recordings import open_recording
from driftwatch.pipeline.plan import Plan
from driftwatch.service.replay import replay
from driftwatch.store.store import Store


@pytest.fixture(scope="module")
def plan() -> Plan:
    return with_proposals(plan_from(None))


def pages_of(store: Store, plan: Plan) -> tuple[PastPage, ...]:
    reach = store.minutes_reach()
    assert reach is not None
    (result,) = backtests(StoredHistory(store, reach, plan), [plan])
    return result.pages


@pytest.mark.parametrize("name", ["run_cap", pytest.param("run_slow", marks=pytest.mark.slow)])
def test_real_servers(name: str, shared_data: Path, plan: Plan) -> None:
    source = open_recording(shared_data / "vllm-0.32" / name)
    with Store.in_memory() as store:
        outcomes = list(replay([source], source.span(), plan, store=store))
        expected = past_pages(t for one in outcomes for t in one.transitions)
        pages = pages_of(store, plan)
    assert expected
    for one, other in zip(pages, expected, strict=True):
        # nothing is simulated: line 1 has what was seen, and not what to do
        assert other.headline.startswith(one.headline.partition(". ")[0])
        # of the minute of a restart a store does not know what was before and what after it
        assert one.resolved_at is not None
        assert other.resolved_at is not None
        assert abs(one.resolved_at - other.resolved_at) <= timedelta(minutes=2)
        assert replace(one, headline="", resolved_at=None) == replace(
            other, headline="", resolved_at=None
        )
