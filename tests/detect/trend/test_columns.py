"""The columns over minutes: a restart of the service, and what is unknown without a past."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from trend_cases import DAY, MONDAY, PLAIN, folded, pin_of, recorded, tiled, together

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.trend import columns as trend
from driftwatch.detect.trend.columns import COLUMNS
from driftwatch.detect.trend.days import finished_days
from driftwatch.detect.trend.memory import Memory
from driftwatch.evidence import BY_NAME, DETECTED
from driftwatch.signals.minutes import no_minutes

HOUR = timedelta(hours=1)
SINCE = MONDAY + 22 * HOUR
UNTIL = MONDAY + DAY + 3 * HOUR


@pytest.fixture(scope="module")
def evening(shared_data: Path) -> pl.DataFrame:
    """Five hours over midnight: a target that is whole, and one to which everything happens."""
    minute = recorded(shared_data / "vllm-0.32" / "run_slow")
    whole = tiled(minute, SINCE, UNTIL, "a:8000")
    troubled = tiled(minute, SINCE, UNTIL, "b:8000").with_row_index("i")
    i = pl.col("i")
    unseen = pl.lit(None)
    counters = [c for c in troubled.columns if c.endswith(("_sum", "_count", "_total", "_buckets"))]
    troubled = troubled.with_columns(
        [pl.when(~i.is_between(70, 80)).then(pl.col(c)).otherwise(unseen) for c in counters]
    ).with_columns(
        scrapes=pl.when(~i.is_between(70, 80)).then("scrapes").otherwise(0.0),
        restarted=i == 130,
        configuration_changed=i == 190,
        # the last bucket edge goes: another layout
        prompt_tokens_edges=pl.when(i >= 200)
        .then(pl.concat_list(pl.col("prompt_tokens_edges").list.head(9), pl.lit([np.inf])))
        .otherwise("prompt_tokens_edges"),
        prompt_tokens_buckets=pl.when(i >= 200)
        .then(
            pl.concat_list(
                pl.col("prompt_tokens_buckets").list.head(9),
                pl.col("prompt_tokens_buckets").list.last(),
            )
        )
        .otherwise("prompt_tokens_buckets"),
    )
    late = tiled(minute, SINCE + 2 * HOUR, UNTIL - HOUR, "c:8000")
    rng = np.random.default_rng(0)
    every = together(whole, troubled.drop("i"), late)
    return every.with_columns(
        speed_at_equal_load_ratio=pl.Series(np.exp(rng.normal(0, 0.035, len(every))))
    )


@pytest.fixture(scope="module")
def pins(evening: pl.DataFrame) -> Baselines:
    whole = evening.filter(pl.col("instance") == "a:8000")
    troubled = evening.filter(pl.col("instance") == "b:8000")
    return Baselines(
        (
            pin_of(whole, SINCE, SINCE + HOUR),
            pin_of(troubled, SINCE, SINCE + HOUR, name="p2"),
        )
    )


def test_what_the_store_kept_goes_on_as_if_nothing_had_happened(
    evening: pl.DataFrame, pins: Baselines
) -> None:
    once, memory = folded(evening, pins=pins)
    assert once["throughput_factor_batch_ratio"].null_count() < len(once) / 2
    cuts = [SINCE + timedelta(minutes=i) for i in (1, 59, 60, 61, 119, 120, 121, 155, 201, 240)]
    kept, after = folded(evening, cuts, pins, kept=True)
    assert_frame_equal(kept, once, rel_tol=1e-12, abs_tol=1e-12)
    assert finished_days(memory)["day"].to_list() == [MONDAY, MONDAY]
    assert_frame_equal(finished_days(after), finished_days(memory), rel_tol=1e-12)


def test_the_columns_are_the_published_ones_and_all_unknown_without_a_past(
    evening: pl.DataFrame,
) -> None:
    told, _ = trend.columns(evening, Memory(), Baselines(), PLAIN)
    assert dict(told.schema) == {name: dtype() for name, dtype in COLUMNS.items()}
    assert set(COLUMNS) <= set(DETECTED)
    kinds = {"float": pl.Float64(), "bool": pl.Boolean(), "string": pl.String()}
    assert all(kinds[BY_NAME[name].dtype] == told.schema[name] for name in COLUMNS)
    known = [name for name in COLUMNS if told[name].null_count() < len(told)]
    assert known == ["trend_unknown_reason"]
    assert told["trend_unknown_reason"][0] == (
        "speed at equal load: 0 of 7 days; p50 end-to-end at equal lengths: 0 of 7 days; "
        "p99 end-to-end at equal lengths: 0 of 7 days"
    )
    assert dict(trend.columns(no_minutes(), Memory(), Baselines(), PLAIN)[0].schema) == dict(
        told.schema
    )


def test_the_age_of_a_pin_begins_at_its_end(evening: pl.DataFrame, pins: Baselines) -> None:
    told, _ = folded(evening, pins=pins)
    age = told.filter(pl.col("instance") == "a:8000")["pin_age_seconds"]
    assert age[:59].is_null().all()
    assert age[59:].to_list() == [60.0 * i for i in range(len(age) - 59)]
    assert told.filter(pl.col("instance") == "c:8000")["pin_age_seconds"].is_null().all()
