"""The fold over minutes: how they come in changes nothing, nor does a stop between them."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from recorded_minutes import SERVING, WATCHING, of_run, pinned, told_of

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.speed.columns import Memory, columns, memory_from
from driftwatch.detect.speed.load_model import LoadModel, fit


def twins(run: pl.DataFrame, instances: int = 4) -> pl.DataFrame:
    """A pool of the run's engine: the first as it was, the others with its healthy minutes only.

    Each of the others meets those minutes in another order, as twins of one pool meet other load.
    """
    healthy = of_run(run)[1:]
    found = [run.with_columns(instance=pl.lit("host-0:8000"))]
    for k in range(1, instances):
        shift = 5 * k
        turned = pl.concat([healthy[shift:], healthy[:shift], healthy, healthy])[: len(run) - 1]
        at = pl.concat([run[:1], turned]).with_columns(run["end"], run["restarted"])
        found.append(at.with_columns(instance=pl.lit(f"host-{k}:8000")))
    return pl.concat(found).sort("instance", "engine", "end")


@pytest.fixture(scope="module")
def pool(run_slow: pl.DataFrame) -> pl.DataFrame:
    return twins(run_slow)


@pytest.mark.parametrize("minutes", [1, 7])
@pytest.mark.parametrize("with_pin", [True, False], ids=["pin", "provisional"])
def test_minutes_at_once_or_in_pieces(
    pool: pl.DataFrame, run_slow: pl.DataFrame, minutes: int, *, with_pin: bool
) -> None:
    model = fit(of_run(run_slow))
    assert isinstance(model, LoadModel)
    pins = pinned(model, pool, "pool") if with_pin else Baselines()
    settings = SERVING if with_pin else WATCHING
    whole, _ = told_of(pool, pins, settings)
    pieces, _ = told_of(pool, pins, settings, timedelta(minutes=minutes))
    assert whole["slower_at_equal_load"].any()
    assert_frame_equal(whole, pieces, check_exact=True)


def test_a_memory_that_was_kept_goes_on(pool: pl.DataFrame) -> None:
    middle = pool["end"].unique().sort()[31]
    first, then = pool.filter(pl.col("end") <= middle), pool.filter(pl.col("end") > middle)
    _, memory = columns(first, Memory(), Baselines(), WATCHING)
    frames = memory.frames()
    again = memory_from(frames)
    for name, frame in again.frames().items():
        assert_frame_equal(frame, frames[name])
    told, _ = columns(then, memory, Baselines(), WATCHING)
    same, _ = columns(then, again, Baselines(), WATCHING)
    assert told["slower_at_equal_load"].any()
    assert_frame_equal(told, same, check_exact=True)
    assert_frame_equal(columns(then, memory_from({}), Baselines(), WATCHING)[0],
                       columns(then, Memory(), Baselines(), WATCHING)[0])  # fmt: skip


def test_targets_come_and_go(pool: pl.DataFrame) -> None:
    """Without the others one target is told the same, less what only twins know."""
    one = pool.filter(pl.col("instance") == "host-0:8000")
    half = pool["end"].unique().sort()[20]
    late = pool.filter((pl.col("instance") == "host-0:8000") | (pl.col("end") > half))
    model = fit(of_run(one))
    assert isinstance(model, LoadModel)
    pins = pinned(model, pool, "pool")
    alone, _ = told_of(one, pins, SERVING)
    joined, memory = told_of(late, pins, SERVING)
    own = [c for c in alone.columns if "pool" not in c]
    assert_frame_equal(
        alone.select(own), joined.filter(pl.col("instance") == "host-0:8000").select(own)
    )
    assert alone["speed_against_pool_ratio"].null_count() == len(alone)
    gone = pl.DataFrame({"instance": ["host-1:8000"], "engine": ["0"]})
    left = memory.without(gone)
    assert left.targets.keys["instance"].to_list() == ["host-0:8000", "host-2:8000", "host-3:8000"]
    assert len(left.targets["load"]) == 3
    assert not left.past.slots.keys.filter(pl.col("instance") == "host-1:8000").height


def test_the_slowed_one_is_slower_than_its_twins(pool: pl.DataFrame) -> None:
    """Without any pin, and its twins are not."""
    told, _ = told_of(pool, Baselines(), SERVING)
    slower = told.filter(pl.col("slower_than_pool"))
    assert set(slower["instance"]) == {"host-0:8000"}
    assert slower["end"].min() <= pool["end"].min() + timedelta(minutes=35)
    assert told["slower_at_equal_load"].null_count() == len(told)
    two, _ = told_of(
        pool.filter(pl.col("instance").is_in(["host-0:8000", "host-1:8000"])), Baselines(), SERVING
    )
    assert two["slower_than_pool"].null_count() == len(two)


def test_a_gap_forgets_the_window_and_not_the_law(pool: pl.DataFrame) -> None:
    later = pool.with_columns(pl.col("end") + timedelta(days=2))
    both = pl.concat([of_run(pool), of_run(later)]).sort("instance", "engine", "end")
    told, memory = told_of(both, Baselines(), WATCHING)
    after = told.filter(pl.col("end") >= later["end"].min())
    assert after.group_by("instance").head(5)["speed_at_equal_load_ratio"].null_count() == 20
    assert after["speed_at_equal_load_ratio"].is_not_null().any()
    assert memory.learners[pool["pool"][0]].model is not None
