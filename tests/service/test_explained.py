"""Explain reads stored minutes: a window of them, and since when a target is silent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from filled import filled
from service_cases import shipped_plan

from driftwatch.detect.reference import no_reference
from driftwatch.diagnose.evidence_table import WINDOW_SCHEMA
from driftwatch.errors import NoVerdict
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.evaluation import stored_evidence
from driftwatch.pipeline.explain import Window, explain, why_not_scraped
from driftwatch.pipeline.stored_state import stored_targets
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.store import Store, TickRecord

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


AT = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
A = TargetKey("a:1", "0")
Row = tuple[str, float, int, str | None]


def _kept(store: Store, *rows: Row) -> None:
    """Minutes: instance, how long ago they ended, usable scrapes, why there is none."""
    made = [
        {
            "instance": instance,
            "engine": "0",
            "end": AT - timedelta(minutes=ago),
            "scrapes": float(scrapes),
            "failure": why,
        }
        for instance, ago, scrapes, why in rows
    ]
    minutes = pl.DataFrame(made, schema=STORED_SCHEMA).sort("instance", "end")
    store.commit_tick(TickRecord(until=AT, minutes=minutes))


def _each(
    instance: str, first: int, last: int, scrapes: int = 4, why: str | None = None
) -> list[Row]:
    return [(instance, ago, scrapes, why) for ago in range(last, first)]


DOWN = "connection\nrefused"


# minutes that are stored, the source that listed it → what is said of a:1
@pytest.mark.parametrize(
    ("rows", "source", "said"),
    [
        ([*_each("a:1", 20, 0), *_each("b:1", 20, 0)], None, None),
        # others are scraped on
        (
            [*_each("a:1", 20, 10), *_each("b:1", 20, 0)],
            None,
            "last scraped 11:50 UTC; not scraped since",
        ),
        (
            [*_each("a:1", 20, 10), *_each("b:1", 20, 0)],
            "p",
            "last scraped 11:50 UTC; not scraped by p since",
        ),
        # nobody is
        (
            [*_each("a:1", 20, 10), *_each("b:1", 20, 10)],
            "p",
            "last scraped 11:50 UTC; nothing is scraped since",
        ),
        (
            [*_each("a:1", 20, 3), *_each("a:1", 3, 0, 0, DOWN)],
            None,
            "last scraped 11:57 UTC; scrapes fail: connection\\nrefused",
        ),
        (
            [*_each("a:1", 20, 3), *_each("a:1", 3, 0, 0, "not listed by p")],
            None,
            "last scraped 11:57 UTC; not listed by p since",
        ),
        ([], None, "never scraped; not scraped since"),
        (
            _each("b:1", 5, 0),
            "p",
            "not scraped since 11:55 UTC, where the minutes begin; not scraped by p since",
        ),
        # later minutes are not known yet
        (
            [*_each("a:1", 20, 10), ("a:1", -1, 4, None), *_each("b:1", 20, -2)],
            None,
            "last scraped 11:50 UTC; not scraped since",
        ),
    ],
)
def test_since_when_a_target_is_silent_and_why(
    rows: list[Row], source: str | None, said: str | None
) -> None:
    with Store.in_memory() as store:
        if rows:
            _kept(store, *rows)
        assert why_not_scraped(store, A, AT, source, AT.date()) == said
