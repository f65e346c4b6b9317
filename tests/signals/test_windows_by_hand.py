"""Windows by hand: edges, gaps, restarts, duplicates."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import polars as pl
import pytest
from pipeline_cases import at, scrapes, windows
from window_cases import COUNTER, GAUGE, _steady

from driftwatch.signals.continuity import with_epochs
from driftwatch.signals.windows import Kind, totals


def _first(frame: pl.DataFrame, name: str) -> datetime:
    value = frame[name][0]
    assert isinstance(value, datetime)
    return value


def test_a_whole_window_is_the_first_to_the_last_scrape_inside() -> None:
    epochs = with_epochs(scrapes(list(_steady(20))))
    row = totals(epochs, windows((15.0, 60.0)), kind="whole", cut=False)
    assert row[COUNTER][0] == 300.0  # 15, 30, 45, 60: both ends count
    assert (_first(row, "first_time"), _first(row, "last_time")) == (at(15), at(60))
    assert row["duration_seconds"][0] == 45.0
    assert row["scrapes"][0] == 4.0
    between = totals(epochs, windows((15.1, 59.9)), kind="whole", cut=False)
    assert between[COUNTER][0] == 100.0
    assert between["duration_seconds"][0] == 15.0


def test_a_chained_window_begins_at_the_scrape_before_it() -> None:
    epochs = with_epochs(scrapes(list(_steady(20))))
    row = totals(epochs, windows((60.0, 120.0)), kind="chained", cut=False)
    assert row[COUNTER][0] == 400.0
    assert row["duration_seconds"][0] == 60.0
    assert row["scrapes"][0] == 4.0  # 60, 75, 90, 105: the end belongs to the next


@pytest.mark.parametrize("kind", ["chained", "whole"])
def test_a_window_without_scrapes_is_unknown(kind: Kind) -> None:
    epochs = with_epochs(scrapes(list(_steady(4))))
    row = totals(epochs, windows((46.0, 100.0), (-100.0, -1.0)), kind=kind, cut=False)
    assert row["scrapes"].to_list() == [0.0, 0.0]
    assert row["duration_seconds"].to_list() == [0.0, 0.0]
    for name in (COUNTER, "ttft_seconds_buckets", f"{GAUGE}_mean", "restarted", "model_name"):
        assert row[name].to_list() == [None, None], name


@pytest.mark.parametrize("missing", [0, 3])
def test_null_at_an_edge_is_unknown_and_not_zero(missing: int) -> None:
    rows = [dict(row) for row in _steady(4)]
    rows[missing][COUNTER] = None
    row = totals(with_epochs(scrapes(rows)), windows((0.0, 45.0)), kind="whole", cut=False)
    assert row[COUNTER][0] is None
    assert row[f"{GAUGE}_mean"][0] == 0.75


def _restarting() -> list[dict[str, Any]]:
    """Down from 30 s to 70 s, then a fresh process that started at 65 s."""
    before = [{"t": t, COUNTER: 1000.0 + t, "process_start_time_seconds": 1.0} for t in (0, 15, 30)]
    started = at(65).timestamp()
    after = [
        {"t": t, COUNTER: 2.0 * (t - 65), "process_start_time_seconds": started}
        for t in (75, 90, 105)
    ]
    return [*before, *after]


def test_cut_leaves_out_what_lies_before_a_restart() -> None:
    epochs = with_epochs(scrapes(_restarting()))
    row = totals(epochs, windows((0.0, 120.0)), kind="whole", cut=True)
    assert row[COUNTER][0] == 80.0  # the new process began at zero
    assert row["duration_seconds"][0] == pytest.approx(40.0)
    assert row["restarted"][0] is True
    assert _first(row, "first_time") == at(75)


def test_without_cut_both_sides_of_a_restart_count() -> None:
    epochs = with_epochs(scrapes(_restarting()))
    row = totals(epochs, windows((0.0, 120.0)), kind="whole", cut=False)
    assert row[COUNTER][0] == 30.0 + 80.0
    assert row["duration_seconds"][0] == pytest.approx(30.0 + 40.0)
    assert row["scrapes"][0] == 6.0
    assert row["restarted"][0] is True


def test_a_restart_is_seen_although_the_counter_passed_its_old_value() -> None:
    rows = [
        {"t": 0, COUNTER: 100.0, "process_start_time_seconds": 1.0},
        {"t": 60, COUNTER: 5000.0, "process_start_time_seconds": 2000.0},
    ]
    row = totals(with_epochs(scrapes(rows)), windows((30.0, 90.0)), kind="chained", cut=False)
    assert row[COUNTER][0] == 5000.0
    assert row["restarted"][0] is True


def test_several_api_servers_tell_a_restart_by_a_counter_that_fell() -> None:
    rows = [
        {"t": 0, COUNTER: 100.0, "prompt_tokens_total": 50.0, "several_api_servers": True},
        {"t": 15, COUNTER: 120.0, "prompt_tokens_total": 3.0, "several_api_servers": True},
    ]
    row = totals(with_epochs(scrapes(rows)), windows((10.0, 20.0)), kind="chained", cut=False)
    # one counter fell, so all began anew, also the one that did not
    assert row[COUNTER][0] == 120.0
    assert row["prompt_tokens_total"][0] == 3.0


def test_a_changed_cache_configuration_cuts() -> None:
    rows = [
        {**row, "cache_config": '{"num_gpu_blocks":"10"}' if row["t"] < 60 else '{"n":"20"}'}
        for row in _steady(8)
    ]
    row = totals(with_epochs(scrapes(rows)), windows((0.0, 105.0)), kind="whole", cut=True)
    assert row["configuration_changed"][0] is True
    assert row["restarted"][0] is False
    assert row[COUNTER][0] == 300.0  # 60 to 105


def test_changed_bucket_edges_are_not_added_up_as_if_they_were_the_same() -> None:
    def page(t: float, counts: list[float], edges: list[float]) -> dict[str, Any]:
        return {
            "t": t,
            "process_start_time_seconds": 1.0 if t < 30 else 1000.0,
            "prompt_tokens_buckets": counts,
            "prompt_tokens_edges": edges,
            "prompt_tokens_count": counts[-1],
            "prompt_tokens_sum": 10.0 * counts[-1],
        }

    rows = [
        page(0, [0.0, 0.0, 0.0], [100.0, 200.0, math.inf]),
        page(15, [7.0, 7.0, 7.0], [100.0, 200.0, math.inf]),
        page(30, [0.0, 3.0, 3.0], [100.0, 800.0, math.inf]),
    ]
    row = totals(with_epochs(scrapes(rows)), windows((0.0, 45.0)), kind="whole", cut=False)
    assert row["prompt_tokens_count"][0] == 10.0
    assert row["prompt_tokens_edges"][0].to_list() == [100.0, 800.0, math.inf]
    assert row["prompt_tokens_buckets"][0].to_list() == [0.0, 3.0, 3.0]


def test_a_scrape_told_twice_with_other_numbers_is_no_restart() -> None:
    rows = [dict(row) for row in _steady(5)]
    again = {**rows[2], COUNTER: rows[2][COUNTER] - 50}  # an older answer with the same time
    row = totals(
        with_epochs(scrapes([*rows, again])), windows((0.0, 60.0)), kind="whole", cut=False
    )
    assert row[COUNTER][0] == 400.0
    assert row["restarted"][0] is False
