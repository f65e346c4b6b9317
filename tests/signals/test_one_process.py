"""Two servers behind one address: only one of them is the target, the other is named."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from driftwatch.minutes.continuity import with_epochs
from driftwatch.signals.one_process import ANOTHER_SERVER, fail_foreign_scrapes
from tests.pipeline_cases import T0, scrapes

OLD, NEW = T0.timestamp() - 9000, T0.timestamp() - 4000


def row(t: float, began: float | None, tokens: float) -> dict[str, float | None]:
    return {"t": t, "process_start_time_seconds": began, "generation_tokens_total": tokens}


def in_turn(count: int = 40) -> pl.DataFrame:
    """An old server of 1,000 tokens/s and a young one of 100, each asked every second time."""
    return scrapes(
        [
            row(5 * i, OLD, 9e6 + 5000 * i) if i % 2 == 0 else row(5 * i, NEW, 4e5 + 500 * i)
            for i in range(count)
        ]
    )


def test_the_other_server_s_scrapes_are_failed_ones_by_name() -> None:
    found = fail_foreign_scrapes(in_turn())
    ours = found.filter("ok")
    assert ours["process_start_time_seconds"].unique().to_list() == [OLD]
    assert len(ours) == 20
    (reason,) = found.filter(~pl.col("ok"))["reason"].unique()
    assert reason.startswith(f"{ANOTHER_SERVER}: its process began 2026-01-02 01:53:20 UTC")
    assert "not through a load balancer" in reason


def test_no_tokens_are_booked_that_the_target_did_not_generate() -> None:
    epochs = with_epochs(fail_foreign_scrapes(in_turn()))
    assert not epochs["restarted"].any()
    grown = epochs["generation_tokens_total"].diff().drop_nulls()
    assert grown.sum() / epochs["step_microseconds"].sum() * 1e6 == pytest.approx(1000)


def test_ticks_know_whose_scrapes_came_before() -> None:
    whole = in_turn()
    at_once = fail_foreign_scrapes(whole)
    state, parts = whole.clear(), []
    for first in range(0, 40, 3):  # begins with either server
        part = fail_foreign_scrapes(whole[first : first + 3], state)
        parts.append(part)
        state = pl.concat([state, part])
    assert pl.concat(parts).equals(at_once)


@pytest.mark.parametrize("began", [T0.timestamp() + 52, T0.timestamp() + 10])
def test_a_restart_is_a_restart(began: float) -> None:
    # the second clock is 40 s behind ours
    rows = [row(5 * i, OLD, 9e6 + i) for i in range(10)]
    rows += [row(50 + 5 * i, began, 10 * i) for i in range(4)]
    frame = scrapes(rows)
    assert fail_foreign_scrapes(frame) is frame
    assert with_epochs(frame)["restarted"].sum() == 1


def test_a_name_that_moved_to_another_server_is_taken_over_after_a_gap() -> None:
    rows = [row(5 * i, OLD, 9e6 + i) for i in range(10)]
    rows += [row(50 + 15 * i, NEW, 4e5 + 1500 * i) for i in range(40)]
    found = fail_foreign_scrapes(scrapes(rows))
    taken = found.filter(pl.col("ok") & (pl.col("process_start_time_seconds") == NEW))
    first = taken["time"][0]
    assert first - found["time"][9] > timedelta(seconds=300)
    assert len(taken) == 40 - (300 - 5) // 15 - 1
    # what it counted before is no increase
    epochs = with_epochs(found)
    assert not epochs["restarted"].any()
    assert epochs.filter(pl.col("time") == first)["step_microseconds"].item() == 0


@pytest.mark.parametrize("lacks", ["process_start_time_seconds", "created_seconds"])
def test_a_start_that_was_not_read_once_makes_no_other_server(lacks: str) -> None:
    """The counters are made minutes after the start, while the model is loaded."""
    rows = [{**row(5 * i, OLD, 10.0 * i), "created_seconds": OLD + 90} for i in range(9)]
    for missed in (0, 3, 8):
        rows[missed][lacks] = None
    frame = scrapes(rows)
    assert fail_foreign_scrapes(frame) is frame
    other = {**row(50, NEW, 4e5), "created_seconds": NEW + 90}
    assert fail_foreign_scrapes(scrapes([*rows, other]))["ok"].to_list() == [True] * 9 + [False]
