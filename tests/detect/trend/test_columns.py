"""The fold over minutes: any split, a restart of the service, targets that come and go."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from trend_cases import DAY, MINUTE, MONDAY, PLAIN, folded, pin_of, recorded, tiled, together

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.memory import named
from driftwatch.detect.trend import columns as trend
from driftwatch.detect.trend.columns import COLUMNS
from driftwatch.detect.trend.days import finished_days
from driftwatch.detect.trend.memory import SIGNALS, Memory
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


def equal(found: Memory, expected: Memory) -> None:
    assert (found.hour, found.minute) == (expected.hour, expected.minute)
    assert_frame_equal(found.targets.keys, expected.targets.keys)
    assert_frame_equal(finished_days(found), finished_days(expected), rel_tol=1e-12)
    for name, array in expected.arrays.items():
        if name != "layouts":  # numbered in the order in which they came: compare the edges
            np.testing.assert_allclose(
                found.arrays[name], array, rtol=1e-9, atol=1e-9, err_msg=name
            )
    for i, signal in enumerate(SIGNALS):
        of = [[m.layouts[signal][n] for n in m.arrays["layouts"][:, i]] for m in (found, expected)]
        assert of[0] == of[1]


def test_every_split_says_the_same(evening: pl.DataFrame, pins: Baselines) -> None:
    once, memory = folded(evening, pins=pins)
    assert once["throughput_factor_batch_ratio"].null_count() < len(once) / 2
    assert finished_days(memory)["day"].to_list() == [MONDAY, MONDAY]
    minutes = [SINCE + i * MINUTE for i in range(1, 300)]
    for cuts in (minutes, minutes[59::60], minutes[6::7], [SINCE + 33 * MINUTE]):
        split, after = folded(evening, cuts, pins)
        assert_frame_equal(split, once, rel_tol=1e-12, abs_tol=1e-12)
        equal(after, memory)


def test_what_the_store_kept_goes_on_as_if_nothing_had_happened(
    evening: pl.DataFrame, pins: Baselines
) -> None:
    once, memory = folded(evening, pins=pins)
    cuts = [SINCE + timedelta(minutes=i) for i in (1, 59, 60, 61, 119, 120, 121, 155, 201, 240)]
    kept, after = folded(evening, cuts, pins, kept=True)
    assert_frame_equal(kept, once, rel_tol=1e-12, abs_tol=1e-12)
    equal(after, memory)
    assert trend.memory_from({}).targets.keys.is_empty()


def test_minutes_that_come_late_break_nothing(evening: pl.DataFrame, pins: Baselines) -> None:
    _, memory = folded(evening, pins=pins)
    again = evening.filter(pl.col("end").is_between(SINCE + 30 * MINUTE, SINCE + 95 * MINUTE))
    told, after = trend.columns(again, memory, pins, PLAIN)
    assert len(told) == len(again)
    assert after.hour == memory.hour
    assert_frame_equal(finished_days(after), finished_days(memory))


def test_what_another_version_kept_is_read_as_far_as_it_can_be(
    evening: pl.DataFrame, pins: Baselines
) -> None:
    _, memory = folded(evening, pins=pins)
    frames = memory.frames()
    fewer = memory.targets.with_arrays(held=memory.arrays["held"][:, :3])
    fewer = replace(fewer, values={n: a for n, a in fewer.values.items() if n != "recent"})
    found = trend.memory_from({**frames, **named(fewer.frames(), "targets")})
    for name in ("recent", "held"):
        assert found.arrays[name].shape == memory.arrays[name].shape
        assert np.isnan(found.arrays[name]).all()
    np.testing.assert_array_equal(found.arrays["day_sums"], memory.arrays["day_sums"])
    begun = trend.memory_from(Memory().frames())
    assert folded(evening, pins=pins, memory=begun)[0].equals(folded(evening, pins=pins)[0])


def test_a_call_changes_nothing_of_the_memory_it_was_given(
    evening: pl.DataFrame, pins: Baselines
) -> None:
    first = evening.filter(pl.col("end") <= SINCE + 90 * MINUTE)
    rest = evening.filter(pl.col("end") > SINCE + 90 * MINUTE)
    _, memory = folded(first, pins=pins)
    before = {name: array.copy() for name, array in memory.arrays.items()}
    once = trend.columns(rest, memory, pins, PLAIN)[0]
    for name, array in memory.arrays.items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    assert_frame_equal(trend.columns(rest, memory, pins, PLAIN)[0], once)


def test_what_is_known_of_a_target_can_be_let_go(evening: pl.DataFrame, pins: Baselines) -> None:
    _, memory = folded(evening, pins=pins)
    gone = pl.DataFrame({"instance": ["b:8000"], "engine": ["0"]})
    left = memory.without(gone)
    assert left.targets.keys["instance"].to_list() == ["a:8000", "c:8000"]
    assert {len(array) for array in left.arrays.values()} == {2}
    alone, _ = folded(evening.filter(pl.col("instance") != "b:8000"), pins=pins)
    others = evening.filter(pl.col("instance") != "b:8000")
    later = others.with_columns(pl.col("end") + 5 * HOUR)
    both = folded(pl.concat([others, later]).sort("instance", "engine", "end"), pins=pins)[0]
    after = trend.columns(later, left, pins, PLAIN)[0]
    last = both.filter(pl.col("end") > UNTIL).select(after.columns)
    assert_frame_equal(after, last, rel_tol=1e-12)
    assert len(alone) == len(others)


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


def test_a_target_costs_less_than_20_kb(evening: pl.DataFrame, pins: Baselines) -> None:
    _, memory = folded(evening, pins=pins)
    bytes_each = sum(array.nbytes for array in memory.arrays.values()) / len(memory.targets)
    assert 10_000 < bytes_each < 20_000
