"""A window of stored minutes says what its scrapes said."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from filled import filled
from service_cases import shipped_plan

from driftwatch.detect.reference import no_reference
from driftwatch.diagnose.evidence_table import WINDOW_SCHEMA
from driftwatch.errors import NoVerdict
from driftwatch.model import Target
from driftwatch.pipeline.evaluation import stored_evidence
from driftwatch.pipeline.explain import Window, explain
from driftwatch.pipeline.stored_state import stored_targets
from driftwatch.store import Store
from driftwatch.store.minute_columns import STORED_SCHEMA, rolled_up

PLAN = shipped_plan()
TEN = timedelta(minutes=10)


@pytest.fixture(scope="module")
def store(shared_data: Path) -> Iterator[Store]:
    with filled(shared_data / "vllm-0.32" / "run_cap", PLAN) as one:
        yield one


def minutes_of(store: Store) -> pl.DataFrame:
    reach = store.minutes_reach()
    assert reach is not None
    return store.past(*reach)


def target_of(store: Store) -> Target:
    (target,) = PLAN.assign(stored_targets(store)).values()
    return target


def row_of(stored: pl.DataFrame, target: Target) -> dict[str, object]:
    first = stored["end"][0] - timedelta(seconds=stored["seconds"][0])
    window = pl.DataFrame(
        [(*target.key, first, stored["end"][-1])], schema=WINDOW_SCHEMA, orient="row"
    )
    found = stored_evidence(stored, window, {target.key: target}, PLAN, no_reference())
    return found.row(0, named=True)


def test_what_came_before_a_restart_is_not_in_it(store: Store) -> None:
    stored = minutes_of(store)
    restart = stored.filter("restarted")["end"][0]
    end = pl.col("end")
    inside = stored.filter((end > restart - TEN / 2) & (end <= restart + TEN / 2))
    row, after = row_of(inside, target_of(store)), inside.filter(end > restart)
    assert row["restarted"]
    assert row["duration_seconds"] == pytest.approx(after["duration_seconds"].sum())
    assert row["finished_requests"] == after["prompt_tokens_count"].sum()


def test_explain_answers_from_minutes(store: Store) -> None:
    first: datetime = minutes_of(store)["end"][0]
    window = Window(first + TEN / 10, first + TEN / 10 * 11)
    finding, found = explain(store, target_of(store), window, PLAN, no_reference())
    assert found == window
    assert finding.diagnosis is not None
    assert finding.diagnosis.leaf == "concurrency_cap_binding"
    assert finding.evidence["binding_limit"] == "max_num_seqs"
    with pytest.raises(NoVerdict) as caught:
        before = Window(first - 9 * TEN, first - 8 * TEN)
        explain(store, target_of(store), before, PLAN, no_reference())
    assert "its minutes reach from" in (caught.value.help_text or "")


def test_ten_minute_rows_say_what_they_cannot(store: Store) -> None:
    ten = rolled_up(minutes_of(store).select(*STORED_SCHEMA), 600).with_columns(seconds=600.0)
    row = row_of(ten.slice(1, 1), target_of(store))
    assert row["finished_requests"] == ten["prompt_tokens_count"][1]
    assert row["prompt_tokens_mean_ratio"] is None  # without a reference
