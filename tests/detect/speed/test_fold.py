"""The fold over minutes: how they come in changes nothing, nor does a stop between them."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest
from recorded_minutes import SERVING, WATCHING, of_run, told_of

from driftwatch.detect.baselines import Baselines


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
