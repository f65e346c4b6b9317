"""All detectors with a past together: one fold, however its minutes come, and whatever restarts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path

import polars as pl
from pipeline_cases import grid, recording, serving
from polars.testing import assert_frame_equal

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.stage import Memory, detect, memory_from
from driftwatch.diagnose.evidence_table import evidence_table
from driftwatch.evidence import DETECTED
from driftwatch.signals.minutes import minutes, no_minutes

SETTINGS = DetectSettings(accepts_proposals=True)
KEY = ["instance", "engine", "end"]


@cache
def pool(shared_data: Path) -> pl.DataFrame:
    """Minutes of run_slow as those of three twins, each from another minute of it on."""
    frame = recording(shared_data / "vllm-0.32" / "run_slow")
    settings = serving(frame, gpus_per_replica=1.0)
    rows = evidence_table(frame, grid(frame), kind="chained", cut=False, serving=settings).rows
    one = minutes(rows)
    twins = [
        one.with_columns(
            instance=pl.lit(f"twin-{turn}:8000"),
            end=pl.col("end") + timedelta(minutes=turn),
        )
        for turn in range(3)
    ]
    first = one["end"].min() + timedelta(minutes=2)  # type: ignore[operator]
    last = one["end"].max()
    return pl.concat(twins).filter(pl.col("end").is_between(first, last)).sort(KEY)


def pieces(frame: pl.DataFrame, size: int) -> Iterator[pl.DataFrame]:
    ends = frame["end"].unique().sort()
    for at in range(0, len(ends), size):
        yield frame.filter(pl.col("end").is_in(ends[at : at + size].implode()))


def folded(frame: pl.DataFrame, size: int, *, restarts: bool = False) -> pl.DataFrame:
    """Columns of every minute, ``size`` minutes a call; with what the store keeps between calls."""
    memory, found = Memory(), []
    for piece in pieces(frame, size):
        if restarts:
            memory = memory_from(dict(memory.frames()))
        columns, memory = detect(piece, memory, Baselines(), SETTINGS)
        found.append(pl.concat([piece.select(KEY), columns], how="horizontal"))
    return pl.concat(found).sort(KEY)


@cache
def at_once(shared_data: Path) -> pl.DataFrame:
    return folded(pool(shared_data), 10_000)


def test_every_published_column_of_a_detector_comes_out_once(shared_data: Path) -> None:
    found = at_once(shared_data)
    assert {*found.columns} - {*KEY} <= {*DETECTED}
    assert len(found) == len(pool(shared_data))
    # the slowed 12 minutes are told of, so what is compared below is no table of NULLs
    known = [name for name in found.columns if found[name].drop_nulls().n_unique() > 1]
    assert {"speed_at_equal_load_ratio", "speed_against_pool_ratio"} <= {*known}


def test_how_minutes_come_and_what_restarts_changes_nothing(shared_data: Path) -> None:
    found = folded(pool(shared_data), 7, restarts=True)
    assert_frame_equal(found, at_once(shared_data), rel_tol=1e-12, abs_tol=1e-12)


def test_a_target_that_left_leaves_nothing(shared_data: Path) -> None:
    frame = pool(shared_data)
    _, memory = detect(frame, Memory(), Baselines(), SETTINGS)
    names = frame.select("instance", "engine").unique(maintain_order=True)
    gone, stays = names.head(1), names.tail(2)
    left = memory.without(gone)
    for name, kept in left.frames():
        if "instance" in kept.columns:
            assert gone["instance"][0] not in kept["instance"].to_list(), name
    assert dict(left.frames()).keys() == dict(memory.frames()).keys()
    # and the others go on as before
    later = frame.with_columns(end=pl.col("end") + timedelta(hours=1)).join(stays, on=stays.columns)
    columns, _ = detect(later, left, Baselines(), SETTINGS)
    assert len(columns) == len(later)


def test_no_minutes_are_no_columns_and_no_change() -> None:
    columns, memory = detect(no_minutes(), Memory(), Baselines(), SETTINGS)
    assert columns.height == 0
    assert dict(memory.frames()).keys() == dict(Memory().frames()).keys()
