"""What ends a plateau, and what is carried of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_cases import (
    at,
    grid,
    minute_by_minute,
    recording,
    scrapes,
    serving,
)
from plateau_cases import caps, inferred, page

from driftwatch.diagnose.evidence_table import Carried, evidence_table
from driftwatch.pipeline.state import HISTORY


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
    rows = evidence_table(
        frame, grid(frame), kind="chained", cut=False, serving=serving(frame, max_num_seqs=64.0)
    ).rows
    assert rows.select("max_num_seqs", "max_num_seqs_inferred").unique().rows() == [(64.0, False)]


def test_a_missing_gauge_does_not_borrow_its_neighbours_level() -> None:
    """The second engine's first page lacks the gauge: its level is unknown, not the first's."""
    big = scrapes([page(5.0 * i, 200.0, 0.0) for i in range(60)])
    small = scrapes(
        [
            page(5.0 * i, 8.0, 5.0) | ({"running_requests": None} if i == 0 else {})
            for i in range(60)
        ],
        engine="1",
    )
    frame = pl.concat([big, small])
    one_go = evidence_table(frame, grid(frame), kind="chained", cut=False, serving=serving(frame))
    ticks, _ = minute_by_minute(
        frame.filter(
            (pl.col("engine") == "0") | (pl.col("time") <= at(1)) | (pl.col("time") > at(60))
        ),
        grid(frame),
        serving(frame),
        history=HISTORY,
    )
    for rows in (one_go.rows, ticks):
        assert rows.filter(pl.col("engine") == "1")["max_num_seqs"][-1] == 8.0


def test_a_missing_gauge_after_a_restart_does_not_keep_the_old_level() -> None:
    rows = [page(5.0 * i, 64.0, 0.0) for i in range(12)]
    after = {"process_start_time_seconds": 2000.0}
    rows += [page(65.0, 0.0, 0.0, **after) | {"running_requests": None}]
    rows += [page(120 + 5.0 * i, 8.0, 5.0, **after) for i in range(60)]
    frame = scrapes(rows)
    ticks, _ = minute_by_minute(frame, grid(frame), serving(frame), history=HISTORY)
    assert ticks["max_num_seqs"][-1] == 8.0


# --- carried


STRETCHES = st.lists(
    st.tuples(
        st.sampled_from(["capped 8", "capped 2", "light", "bursty", "restart", "failed", "away"]),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=6,
)


def server(stretches: list[tuple[str, int]], seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    t, started, tokens = 3.0, 1000.0, 0.0
    rows: list[dict[str, Any]] = []
    for kind, n in stretches:
        if kind == "away":
            t += 35.0 * n
            continue
        if kind == "restart":
            started, tokens = started + 100.0, 0.0
        for _ in range(n):
            t += 15.0
            tokens += 10.0
            running, waiting = {
                "capped 8": (8.0 - (rng.random() < 0.2), 5.0),
                "capped 2": (2.0, 3.0),
                "bursty": (float(rng.integers(0, 20)), 2.0),
            }.get(kind, (float(rng.integers(0, 3)), 0.0))
            row = page(
                t,
                running,
                waiting,
                process_start_time_seconds=started,
                generation_tokens_total=tokens,
            )
            rows.append({"t": t, "ok": False} if kind == "failed" else row)
    return scrapes(rows)


@settings(max_examples=12, deadline=None)
@given(stretches=STRETCHES, seed=st.integers(0, 9), every=st.integers(1, 5))
def test_carried_is_uninterrupted_wherever_it_is_split(
    stretches: list[tuple[str, int]], seed: int, every: int
) -> None:
    frame = server(stretches, seed)
    if frame.is_empty():
        return
    asked, settings_ = grid(frame), serving(frame)
    one_go = evidence_table(frame, asked, kind="chained", cut=False, serving=settings_)
    ticks, _ = minute_by_minute(frame, asked, settings_, history=HISTORY, every=every)
    columns = ["end", "max_num_seqs", "max_num_seqs_inferred", "binding_limit"]
    assert ticks.select(columns).rows() == one_go.rows.select(columns).rows()


def test_what_is_carried_is_one_row_a_target(shared_data: Path) -> None:
    frame = recording(shared_data / "vllm-0.32" / "run_cap")
    asked = grid(frame).head(14)
    carried = evidence_table(
        frame, asked, kind="chained", cut=False, serving=serving(frame), carried=Carried()
    ).carried
    assert carried.until == asked["end"].max()
    assert carried.plateau.rows() == [("host:8000", "0", 8.0, 8.0)]
    assert carried.alive.height == 1
