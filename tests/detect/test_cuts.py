"""The answer for a minute depends on minutes and references only, not on how ticks cut them."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from detector_cases import at, minutes_of, play

from driftwatch.pipeline.detection import Detection, detection_from
from driftwatch.store.store import Store

SLOW = {"b:8000": [(150, 190, 1.3)], "c:8000": [(100, 110, 1.5)]}


@pytest.fixture(scope="module")
def minutes() -> pl.DataFrame:
    return minutes_of(200, slow=SLOW)


@pytest.fixture(scope="module")
def whole(minutes: pl.DataFrame) -> pl.DataFrame:
    return play(minutes)[0]


def test_the_loss_is_among_them(whole: pl.DataFrame) -> None:
    assert whole["slower_at_equal_load"].any()
    assert whole["slower_than_pool"].any()
    assert whole["speed_unknown_reason"].null_count() < len(whole)


@pytest.mark.parametrize("restarts", [False, True])
def test_any_cut_gives_equal_columns(
    minutes: pl.DataFrame, whole: pl.DataFrame, tmp_path: Path, restarts: bool
) -> None:
    cuts = [at(k) for k in random.Random(7).sample(range(1, 200), 6 if restarts else 25)]
    with Store.open(tmp_path / "driftwatch.sqlite") as store:

        def between(detection: Detection, now: datetime) -> Detection:
            return detection_from(store, now) if restarts else detection

        assert play(minutes, cuts=cuts, between=between, store=store)[0].equals(whole)
