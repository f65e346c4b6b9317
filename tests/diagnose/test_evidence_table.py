"""The one table: order, splitting, engines, names and dates do not matter to its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from pipeline_cases import (
    HOST,
    KEY,
    at,
    evidence,
    grid,
    recording,
    scrapes,
    serving,
    windows,
)

from driftwatch.collect.pages import PageParser
from driftwatch.collect.registry import BY_COLUMN, GAUGES
from driftwatch.evidence import COLUMNS

INPUTS = tuple(c for c in BY_COLUMN if c not in ("created_seconds", "process_start_time_seconds"))


def table(frame: pl.DataFrame, asked: pl.DataFrame | None = None, **settings: Any) -> pl.DataFrame:
    settings = {"slo_ttft_seconds": 0.5, **settings}
    return evidence(
        frame, grid(frame) if asked is None else asked, serving(frame, **settings), INPUTS
    )


def test_the_order_of_scrapes_does_not_matter(shared_data: Path) -> None:
    frame = recording(shared_data / "vllm-0.32" / "run_cap")
    expected = table(frame)
    for other in (frame.reverse(), frame.sample(fraction=1.0, shuffle=True, seed=3)):
        assert table(other).equals(expected)


def two_engines(shared_data: Path) -> pl.DataFrame:
    parser = PageParser()
    folder = shared_data / "vllm-0.32"
    pages = [
        (HOST, at(30 + 20 * i), (folder / f"metrics_dp2_{when}.txt").read_bytes())
        for i, when in enumerate(("during", "after"))
    ]
    return parser.parse_many(pages).scrapes


def test_two_engines_stay_apart(shared_data: Path) -> None:
    frame = two_engines(shared_data)
    both = table(frame)
    assert both.select(KEY).rows() == [(HOST, "0"), (HOST, "1")]
    for engine in ("0", "1"):
        alone = table(frame.filter(pl.col("engine") == engine))
        beside = both.filter(pl.col("engine") == engine)
        pool = [c for c in both.columns if c.startswith("pool_")]
        assert beside.drop(pool).equals(alone.drop(pool))


def busy(t: float, running: float, waiting: float, requests: float = 0.0) -> dict[str, Any]:
    served = {"ttft_seconds_count": requests, "ttft_seconds_sum": 0.1 * requests}
    return {"t": t, "running_requests": running, "waiting_requests": waiting, **served}


def of_a_pool(*servers: tuple[str, float, float, float]) -> pl.DataFrame:
    """A minute of servers: name, running, waiting, requests/s."""
    return pl.concat(
        scrapes([busy(t, running, waiting, t * rate) for t in range(0, 61, 5)], instance=name)
        for name, running, waiting, rate in servers
    )


def test_idle_twins_are_those_of_the_same_minute_and_pool() -> None:
    def idle(*servers: tuple[str, float, float, float]) -> list[float | None]:
        rows = table(of_a_pool(*servers)).unique("instance", keep="first").sort("instance")
        return rows["pool_idle_ratio"].to_list()

    assert idle(("a:1", 8, 4, 2), ("b:1", 0, 0, 0.1), ("c:1", 8, 0, 1)) == [0.5, 0.0, 0.5]
    assert idle(("a:1", 8, 4, 2)) == [None]  # a pool of one
    # of a burst each had its share; one of them is done with it
    assert idle(("a:1", 1, 14, 1), ("b:1", 0, 0, 0.9)) == [0.0, 0.0]


def test_targets_without_scrapes_are_unknown_not_zero() -> None:
    frame = scrapes([busy(t, 3.0, 0.0) for t in range(0, 60, 5)])
    ghost = windows((0, 60), instance="ghost:1")
    both = pl.concat([serving(frame), serving(ghost)])
    rows = evidence(frame, pl.concat([ghost, windows((0, 60))]), both, INPUTS)
    row = rows.row(0, named=True)
    assert row["instance"] == "ghost:1"
    known = {name: row[name] for name in (c.name for c in COLUMNS) if row[name] is not None}
    # the pool knows of its other target; nothing is said of this one
    assert {n for n in known if not n.startswith("pool_")} == {"scrapes"}
    assert known["scrapes"] == 0.0


def test_stats_disabled_is_unknown_not_idle(shared_data: Path) -> None:
    page = (shared_data / "vllm-0.32" / "metrics_disable_log_stats.txt").read_bytes()
    parser = PageParser()
    frame = parser.parse_many([(HOST, at(5.0 * i), page) for i in range(12)]).scrapes
    row = table(frame, windows((0, 60))).row(0, named=True)
    for name in (*GAUGES[:2], "generation_tokens_per_second", "binding_limit", "restarted"):
        assert row[name] is None, name
    assert row["scrapes"] == 0.0
