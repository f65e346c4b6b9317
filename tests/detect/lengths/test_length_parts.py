"""Layouts on one grid, sums in one order, contexts of ordinary days and holidays, scales."""

from __future__ import annotations

from datetime import date

import numpy as np
import polars as pl
import pytest
from length_cases import minutes_of, told

from driftwatch.detect.lengths.contexts import Past
from driftwatch.detect.lengths.layouts import (
    MOST_EDGES,
    ONLY_INF,
    distances,
    read,
    regridded,
    running,
    wider,
)
from driftwatch.detect.lengths.memory import Memory
from driftwatch.detect.lengths.scales import PEER_SCALE, UNCALIBRATED, context_scales, peer_scales
from driftwatch.detect.null import day_number
from driftwatch.detect.settings import DetectSettings

INF = np.inf


def layouts(*pairs: tuple[list[float] | None, list[float] | None]) -> pl.DataFrame:
    """Minutes with these cumulative counts and edges, of both signals."""
    minutes = minutes_of(days=0.125).head(len(pairs))
    lists = {
        f"{signal}_{part}": pl.Series([p[i] for p in pairs], dtype=pl.List(pl.Float64))
        for signal in ("prompt_tokens", "generation_tokens")
        for i, part in enumerate(("buckets", "edges"))
    }
    return minutes.with_columns(**lists)


def test_two_layouts_are_compared_where_both_have_edges() -> None:
    minutes = layouts(
        ([10.0, 30, 60, 100], [1.0, 10, 100, INF]),
        ([10.0, 20, 30, 60, 90, 100], [1.0, 5, 10, 100, 1000, INF]),
    )
    grid = wider(ONLY_INF, minutes)
    assert grid.tolist() == [1.0, 5, 10, 100, 1000, INF]
    counts, _, is_known = read(minutes, grid)
    assert is_known.all()
    assert np.isnan(counts[0, 0]).tolist() == [False, True, False, False, True, False]
    apart = distances(counts[:1, 0].astype(float), counts[1:, 0].astype(float), grid)
    assert apart.js[0] == 0.0
    assert apart.w1[0] == 0.0


def test_what_is_no_histogram_is_unknown() -> None:
    edges = [1.0, 10, 100, INF]
    minutes = layouts(
        (None, None),
        ([1.0, 2, 3, 4], [1.0, 10, 100, 1000]),  # no +Inf
        ([4.0, 3, 5, 6], edges),  # falls
        ([1.0, 2], edges),  # too short
        ([0.0, 0, 0, 0], edges),  # nothing finished: known
    )
    _, sums, is_known = read(minutes, wider(ONLY_INF, minutes))
    assert is_known[:, 0].tolist() == [False, False, False, False, True]
    assert not np.isnan(sums).any()


def test_a_fleet_of_endless_layouts_keeps_its_bounds() -> None:
    grid = ONLY_INF
    for i in range(40):
        edges = [*np.arange(1.0, 6) + i / 50, INF]
        minutes = layouts(([1.0] * 6, edges))
        grid = wider(grid, minutes)
    assert len(grid) <= MOST_EDGES
    assert not read(minutes, grid)[2].any()


def test_a_wider_grid_leaves_what_is_new_unknown() -> None:
    old, new = np.array([1.0, 10.0, INF]), np.array([1.0, 5.0, 10.0, INF])
    counts = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    wide = regridded(counts, old, new)
    assert wide[1].tolist() == [0.0] * 4
    assert np.isnan(wide[0]).tolist() == [False, True, False, False]


def test_running_sums_are_those_of_the_latest_minutes() -> None:
    history = np.random.default_rng(1).integers(0, 9, (80, 3)).astype(float)
    found = running(history, 20, (10, 60))
    for b in range(20):
        end = 60 + b + 1
        assert found[10][b].tolist() == history[end - 10 : end].sum(axis=0).tolist()
        assert found[60][b].tolist() == history[end - 60 : end].sum(axis=0).tolist()


THURSDAY = day_number(date(2026, 11, 26))


def past(*holidays: date) -> Past:
    hours = np.arange((THURSDAY - 28) * 24, (THURSDAY + 2) * 24)
    shape = (len(hours), 1, 2, 1)
    return Past(
        hours,
        np.ones(shape, dtype=np.float32),
        np.ones(shape[:3]),
        {day_number(day) for day in holidays},
    )


def test_an_ordinary_day_is_compared_with_ordinary_days() -> None:
    known = past(date(2026, 11, 25))
    days = {hour // 24 - THURSDAY for hour in known.same_hours(THURSDAY * 24 + 5)}
    assert days == {-2, -3, -4, -5, -6, -7, -14, -21, -28}
    assert not any(h // 24 == THURSDAY - 1 for h in known.day_before(THURSDAY * 24 + 5))


def test_a_holiday_is_compared_with_sundays_and_holidays() -> None:
    known = past(date(2026, 11, 26), date(2026, 11, 11))
    days = {hour // 24 - THURSDAY for hour in known.same_hours(THURSDAY * 24 + 5)}
    sundays = {-4, -11, -18, -25}
    assert days == sundays | {-15}
    assert len(known.day_before(THURSDAY * 24 + 5)) == 24


def test_a_young_pools_scale_is_the_middle_of_its_days_largest() -> None:
    keys = pl.DataFrame({"pool": "a", "signal": ["prompt_tokens", "generation_tokens"]})
    known, slots = Memory().contexts.with_keys(keys)
    known = known.begun(0)
    for day, largest in enumerate((30.0, 6.0, 8.0), start=1):
        for value in (*[1.0] * 200, largest):
            known = known.add(slots, np.full(2, value))
        known = known.begun(day)
    scale, source = context_scales(known)
    # a month's largest of a service whose days go to 8; twice the scale is the threshold
    month = 8.0 * np.log(30 * 144 * 2) / np.log(144)
    assert 2.0 * scale[0, 0] == pytest.approx(month, rel=0.09)  # a bin is 8 %
    assert source.tolist() == [[2, 2]]


def test_a_holiday_does_not_become_a_context() -> None:
    minutes = minutes_of(servers=3, days=2.25, per_server=0.5)
    settings = DetectSettings(holidays={date(2026, 11, 9): "founding day"})
    found, _ = told(minutes, settings=settings)
    ordinary, _ = told(minutes)
    after = pl.col("end").dt.day() == 11
    assert ordinary.filter(after)["prompt_tokens_drift_score"].null_count() == 0
    assert not found.filter(after)["prompt_tokens_drift_score"].equals(
        ordinary.filter(after)["prompt_tokens_drift_score"]
    )


def test_scales_are_own_then_the_pools_then_shipped() -> None:
    targets = pl.DataFrame({"instance": ["a", "b", "c"], "engine": "0"})
    memory = Memory().with_units(targets, pl.DataFrame({"pool": ["p"]}))
    of_pool = np.array([0, 0, -1])
    scale, source = peer_scales(memory.peers, of_pool)
    assert scale.tolist() == [[UNCALIBRATED * PEER_SCALE] * 2] * 3
    assert (source == 2).all()
    rng = np.random.default_rng(2)
    peers, contexts = memory.peers, memory.contexts
    for day in range(5):
        peers, contexts = peers.begun(100 + day), contexts.begun(100 + day)
        for _ in range(400):
            value = np.abs(rng.normal(size=6)) + 0.5
            value[2:4] = np.nan if day else value[2:4]  # b is known for a day only
            peers = peers.add(np.arange(6), value)
            contexts = contexts.add(np.arange(2), np.abs(rng.normal(size=2)) + 0.5)
    peers, contexts = peers.begun(105), contexts.begun(105)
    scale, source = peer_scales(peers, of_pool)
    assert source[:, 0].tolist() == [0, 1, 0]
    assert scale[0, 0] == pytest.approx(0.5 + 2.576, abs=0.4)
    assert context_scales(contexts)[1].tolist() == [[0, 0]]


def test_a_disturbed_past_does_not_make_disturbance_usual() -> None:
    targets = pl.DataFrame({"instance": ["a"], "engine": "0"})
    peers = Memory().with_units(targets, pl.DataFrame({"pool": ["p"]})).peers
    rng = np.random.default_rng(2)
    for day in range(5):
        peers = peers.begun(100 + day)
        for minute in range(400):
            value = 20.0 if minute < 20 else 1.0 + 0.1 * rng.random()
            peers = peers.add(np.arange(2), np.full(2, value))
    scale, _ = peer_scales(peers.begun(105), np.array([0]))
    assert (scale < 5).all()
