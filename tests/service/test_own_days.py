"""A server without a baseline is compared with its own days: in ticks, and when explained."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from driftwatch.collect.recordings import RecordingSource
from driftwatch.collect.schema import Collected
from driftwatch.detect.reference import no_reference
from driftwatch.detect.references import Reference, References, TargetDays
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.detection import Detection
from driftwatch.pipeline.explain import Window, explain
from driftwatch.pipeline.state import Outcome, State
from driftwatch.pipeline.tick import evaluate, isolated
from driftwatch.service.configuration import plan_of_rules
from driftwatch.store import Store, TickRecord

KEY = TargetKey("host:8000", "0")
PLAN = plan_of_rules(())


def document(until: datetime, hits: float) -> Reference:
    """What a midnight before a minute learnt: one day with this share of prefix hits."""
    day = until.date() - timedelta(days=1)
    days = TargetDays(speed_slope_14d_ratio=-0.01, measures=((day, (1.0, None, hits, 0.0)),))
    return Reference("", KEY, until, days)


def ticked(shared_data: Path, hits: float | None, store: Store) -> tuple[State, Outcome, datetime]:
    """Fifteen minutes of run_main, whose prompts find 12 % of their tokens in the cache."""
    source = RecordingSource(shared_data / "vllm-0.32/run_main")
    begins, _ = source.span()
    until = begins.replace(second=0, microsecond=0) + timedelta(minutes=15)
    collected = source.collect(begins, until)
    source.close()
    learnt = [] if hits is None else [document(until, hits)]
    state = State(detection=Detection(references=References().with_more(learnt)))
    after, outcome = evaluate(
        state, [Collected(collected.scrapes, collected.targets)], until, PLAN, store
    )
    return after, outcome, until


@pytest.mark.parametrize(("hits", "lost"), [(0.6, True), (0.15, False), (None, None)])
def test_a_tick_compares_prefix_hits_with_the_days_before(
    shared_data: Path, hits: float | None, lost: bool | None
) -> None:
    with Store.in_memory() as store:
        _, outcome, _ = ticked(shared_data, hits, store)
    last = outcome.rows.filter(pl.col("scrapes") > 0).row(-1, named=True)
    assert last["reference_prefix_cache_hit_ratio"] == hits
    assert last["reference_kind"] is None  # nobody has accepted a baseline
    known = outcome.rows.filter(pl.col("ttft_seconds_count") >= 100)["prefix_hits_lost"]
    assert len(known) > 3
    assert set(known) == {lost}


def test_explain_reads_them_from_the_store(shared_data: Path) -> None:
    with Store.in_memory() as store:
        _, outcome, until = ticked(shared_data, 0.6, store)
        store.commit_tick(
            TickRecord(
                since=until - timedelta(minutes=15),
                until=until,
                minutes=outcome.minutes,
                references=[document(until, 0.6)],
            )
        )
        window = Window(until - timedelta(minutes=10), until)
        finding, _ = explain(store, Target(KEY, {}), window, PLAN, no_reference())
        assert finding.evidence["prefix_hits_lost"] is True


def test_a_scrape_that_cannot_be_evaluated_costs_no_days(shared_data: Path) -> None:
    with Store.in_memory() as store:
        state, _, _ = ticked(shared_data, 0.6, store)
    before = state.detection
    state = State(targets=state.targets, detection=before)
    source = RecordingSource(shared_data / "vllm-0.32/run_main")
    begins, _ = source.span()
    scrape = source.collect(begins, begins + timedelta(minutes=1))
    source.close()

    def judge(before: State, brought: Any) -> tuple[State, Outcome]:
        if any(one.scrapes["ok"].any() for one in brought):
            raise ValueError("a number that nobody expected")
        return before, Outcome(pl.DataFrame(), pl.DataFrame())

    after, outcome = isolated(judge, state, [scrape])
    assert set(outcome.not_evaluated) == {KEY.instance}
    days = after.detection.references.days("", KEY)
    assert days == before.references.days("", KEY) != TargetDays()
    assert after.detection.work.is_empty()  # its minutes may be what cannot be evaluated
