"""What ends a plateau."""

from __future__ import annotations

import polars as pl
from pipeline_cases import at, evidence, grid, scrapes, serving
from plateau_cases import caps, inferred, page


def test_a_restart_expires_it() -> None:
    before = [page(5.0 * i, 8.0, 5.0) for i in range(36)]
    after = [
        page(180 + 5.0 * i, 2.0, 0.0, process_start_time_seconds=2000.0, generation_tokens_total=i)
        for i in range(60)
    ]
    found = inferred(scrapes([*before, *after]))
    assert found.filter(pl.col("end") <= at(180))["cap"][-1] == 8.0
    assert found.filter(pl.col("end") > at(180))["cap"].null_count() == 5


def test_a_changed_cache_configuration_expires_it() -> None:
    rows = [
        page(
            5.0 * i,
            8.0 if i < 36 else 2.0,
            5.0 if i < 36 else 0.0,
            cache_config=f'{{"n":"{i // 36}"}}',
        )
        for i in range(96)
    ]
    found = inferred(scrapes(rows))
    assert found["cap"][2] == 8.0
    assert found.filter(pl.col("end") > at(180))["cap"].null_count() == 5


def test_running_more_than_it_expires_it() -> None:
    rows = [page(5.0 * i, 8.0, 5.0) for i in range(36)]
    rows += [page(180 + 5.0 * i, 9.0 if i == 3 else 4.0, 0.0) for i in range(60)]
    found = inferred(scrapes(rows))
    assert found["cap"][:3].to_list()[-1] == 8.0
    assert found.filter(pl.col("end") > at(180))["cap"].null_count() == 5


def test_running_more_once_forbids_a_lower_plateau() -> None:
    rows = [page(5.0 * i, 40.0 if i == 0 else 8.0, 0.0 if i == 0 else 5.0) for i in range(200)]
    assert caps(scrapes(rows)) == set()


def test_a_known_cap_is_not_replaced() -> None:
    frame = scrapes([page(5.0 * i, 8.0, 5.0) for i in range(60)])
    rows = evidence(frame, grid(frame), serving(frame, max_num_seqs=64.0))
    assert rows.select("max_num_seqs", "max_num_seqs_inferred").unique().rows() == [(64.0, False)]


def test_a_missing_gauge_does_not_borrow_its_neighbours_level() -> None:
    """The second engine's first page lacks the gauge: its level is unknown, not the first's."""
    big = scrapes([page(5.0 * i, 200.0, 0.0) for i in range(60)])
    rows = [page(5.0 * i, 8.0, 5.0) for i in range(60)]
    rows[0]["running_requests"] = None
    frame = pl.concat([big, scrapes(rows, engine="1")])
    found = evidence(frame, grid(frame), serving(frame))
    assert found.filter(pl.col("engine") == "1")["max_num_seqs"][-1] == 8.0
