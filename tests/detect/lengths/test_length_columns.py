"""The scores as they reach the evidence: what is told of whom, when, and what is left unknown."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from length_cases import START, between, minutes_of, scaled, told
from polars.testing import assert_frame_equal

from driftwatch.detect.lengths.columns import SCHEMA, Memory, columns, memory_from
from driftwatch.detect.settings import DetectSettings

COARSE = (1, 5, 20, 100, 500, 2000, 8192, 20000, np.inf)


def disturbed() -> pl.DataFrame:
    """27 h of four servers with a shift, a hole, a restart, another layout, another pool."""
    change = scaled(1, 1500, 1540, 0, 2.0)
    minutes = minutes_of(days=1.125, change=change)
    other = minutes_of(days=1.125, change=change, edges=COARSE)
    late = START + timedelta(minutes=1560)
    one = pl.col("instance") == "s2"
    minutes = pl.concat(
        [minutes.filter(~(one & (pl.col("end") > late))), other.filter(one, pl.col("end") > late)]
    ).sort("instance", "end")
    at = (pl.col("end") - START).dt.total_minutes()
    hole = (pl.col("instance") == "s3") & at.is_between(1450, 1475)
    lists = [c for c in minutes.columns if c.endswith(("_buckets", "_edges"))]
    return minutes.with_columns(
        *(pl.when(~hole).then(pl.col(c)).alias(c) for c in lists),
        scrapes=pl.when(hole).then(0.0).otherwise(2.0),
        restarted=(pl.col("instance") == "s0") & (at == 1580),
        pool=pl.when((pl.col("instance") == "s0") & (at > 1590))
        .then(pl.lit("else"))
        .otherwise(pl.lit("chat")),
    ).filter(~at.is_between(1100, 1104))  # nobody was seen


@pytest.fixture(scope="module")
def at_once() -> tuple[pl.DataFrame, Memory]:
    return told(disturbed())


def test_minutes_in_pieces_and_a_way_through_the_store(
    at_once: tuple[pl.DataFrame, Memory],
) -> None:
    minutes = disturbed()
    before, memory = told(between(minutes, 0, 1430))
    for since in range(1430, 1610, 20):
        memory = memory_from(memory.frames())
        found, memory = told(between(minutes, since, since + 20), memory, every=7)
        assert_frame_equal(found, between(at_once[0], since, since + 20), check_exact=True)
    assert_frame_equal(before, between(at_once[0], 0, 1430), check_exact=True)


def test_no_minutes_no_rows() -> None:
    found, memory = columns(minutes_of(days=0.125).clear(), Memory(), DetectSettings())
    assert found.schema == pl.Schema(SCHEMA)
    assert not len(found)
    assert memory.minute == -1


def test_unknown_minutes_have_no_verdict(at_once: tuple[pl.DataFrame, Memory]) -> None:
    hole = between(at_once[0], 1449, 1475).filter(pl.col("instance") == "s3")
    assert len(hole)
    assert hole.select(*SCHEMA).null_count().row(0) == (len(hole),) * len(SCHEMA)
    twins = between(at_once[0], 1460, 1475).filter(pl.col("instance") == "s2")
    assert twins["traffic_uneven"].null_count() == 0


def test_after_a_restart_nothing_is_compared(at_once: tuple[pl.DataFrame, Memory]) -> None:
    young = between(at_once[0], 1579, 1589).filter(pl.col("instance") == "s0")
    assert young["prompt_tokens_peer_score"].null_count() == len(young) == 10


def test_another_layout_of_buckets_is_no_shift(at_once: tuple[pl.DataFrame, Memory]) -> None:
    after = between(at_once[0], 1560, 1620)
    changed = after.filter(pl.col("instance") == "s2")
    assert changed["prompt_tokens_peer_score"].null_count() == 0  # on the common edges
    assert not after["traffic_uneven"].any()
    assert not after["traffic_shifted"].any()


def test_edges_with_nothing_in_common_are_no_verdict() -> None:
    minutes = minutes_of(days=0.25)
    other = minutes_of(days=0.25, edges=(3, 7, 33, 333, 3333, np.inf))
    one = pl.col("instance") == "s1"
    mixed = pl.concat([minutes.filter(~one), other.filter(one)]).sort("instance", "end")
    found, _ = told(mixed)
    assert found.filter(one)["prompt_tokens_peer_score"].null_count() == 360
    assert not found["traffic_uneven"].any()


def test_two_servers_are_no_twins() -> None:
    found, _ = told(minutes_of(servers=2, days=0.25))
    assert found["traffic_uneven"].null_count() == len(found)
    assert found["prompt_tokens_peer_score"].null_count() == len(found)


def test_too_few_requests_are_no_verdict() -> None:
    minutes = minutes_of(days=0.25, per_server=0.02)
    found, _ = told(minutes)
    hour = minutes.select(pl.col("prompt_tokens_count").rolling_sum(60).over("instance"))
    few = (hour.to_series() < 100).fill_null(False)
    assert few.any()
    assert found.filter(few)["prompt_tokens_peer_score"].null_count() == few.sum()
    wide = minutes_of(days=0.25, per_server=0.05)  # 180 an hour
    assert told(wide)[0]["prompt_tokens_peer_score"].drop_nulls().len() > 600


@pytest.mark.parametrize(
    ("signal", "factor", "within"), [(0, 2.0, 5), (1, 2.0, 5), (0, 1.3, 12), (1, 1.3, 12)]
)
def test_one_server_with_other_lengths_is_told_of_and_nobody_else(
    signal: int, factor: float, within: int
) -> None:
    minutes = minutes_of(
        servers=3, days=0.5, per_server=6.0, change=scaled(1, 600, 650, signal, factor)
    )
    found, _ = told(minutes)
    uneven = found.filter("traffic_uneven")
    assert uneven["instance"].unique().to_list() == ["s1"]
    assert uneven["end"].min() <= START + timedelta(minutes=601 + within)
    assert uneven["end"].min() > START + timedelta(minutes=600)
    # over within the window and the calm minutes after it
    assert uneven["end"].max() <= START + timedelta(minutes=650 + 10 + 16)
    name = ("prompt_tokens", "generation_tokens")[signal]
    ratio = between(found, 615, 650).filter(pl.col("instance") == "s1")[f"{name}_peer_ratio"]
    assert ratio.mean() == pytest.approx(factor, rel=0.1)


def test_a_slow_server_is_no_sticky_client() -> None:
    minutes = minutes_of(servers=3, days=0.5, per_server=6.0, change=scaled(1, 600, 650, 0, 2.0))
    slow = minutes.with_columns(slower_than_pool=pl.col("instance") == "s1")
    found, _ = told(slow)
    assert not found["traffic_uneven"].any()


def test_an_untouched_pool_is_quiet_through_season_and_bursts() -> None:
    found, _ = told(minutes_of("servegen", servers=3, days=2, per_server=5.0))
    assert not found["traffic_uneven"].any()
    assert not found["traffic_shifted"].any()
    young = between(found, 0, 1440)  # nobody knows what is usual at an hour of the first day
    assert young["traffic_shifted"].null_count() == len(young)
    assert between(found, 1520, 2880)["traffic_shifted"].null_count() == 0
    assert set(found["prompt_tokens_calibration"].drop_nulls()) == {"shipped"}


@pytest.mark.slow
def test_bursts_that_a_pool_has_every_day_are_no_shift() -> None:
    starts = [1440 * day + at + 75 * day for day in range(3) for at in (310, 700, 1090)]

    def change(minute: np.ndarray, server: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        burst = np.isin(minute, [at + m for at in starts for m in range(10)])
        return lengths * np.where(burst, 1.5, 1.0)[:, None]

    found, _ = told(minutes_of(servers=3, days=3, per_server=2.0, change=change))
    assert not found["traffic_shifted"].any()
    burst = between(found, starts[-1] + 9, starts[-1] + 11)  # they are further than quiet hours
    assert burst["prompt_tokens_drift_score"].max() > 0.5


@pytest.fixture(scope="module")
def shifted() -> pl.DataFrame:
    change = scaled(None, 5 * 1440 + 400, 5 * 1440 + 460, 1, 1.3)
    return told(minutes_of(servers=3, days=5.5, per_server=1.0, change=change))[0]


def test_a_pool_with_other_lengths_is_told_of(shifted: pl.DataFrame) -> None:
    on = shifted.filter("traffic_shifted")
    begin = START + timedelta(days=5, minutes=400)
    assert begin < on["end"].min() <= begin + timedelta(minutes=11)
    assert on["end"].max() <= begin + timedelta(minutes=60 + 10 + 16)
    assert on["instance"].n_unique() == 3
    ratio = on.filter(pl.col("end") == on["end"].min())["generation_tokens_drift_ratio"]
    assert (ratio > 1.1).all()
    over = shifted.filter(pl.col("end") > on["end"].max())["traffic_shift_over"]
    assert over.tail(60).all()


def test_scores_are_measured_in_the_own_past_after_five_days(shifted: pl.DataFrame) -> None:
    whose = shifted["generation_tokens_calibration"]
    assert set(between(shifted, 0, 5 * 1440)["generation_tokens_calibration"].drop_nulls()) == {
        "shipped"
    }
    assert whose[-1] == "own"
    # 1 is the 99 % quantile of quiet days
    quiet = between(shifted, 5 * 1440, 5 * 1440 + 390)["generation_tokens_drift_score"]
    assert 0.2 < quiet.quantile(0.9) < 1.2


def test_the_smallest_detectable_factor_is_told_and_would_be_found(shifted: pl.DataFrame) -> None:
    told_of = between(shifted, 5 * 1440, 5 * 1440 + 400)
    smallest = told_of["generation_tokens_smallest_detectable_ratio"]
    assert smallest.null_count() == 0
    # three requests a second: x1.3 was found (above) in a window that was long enough; in 95 of 100
    # windows of a day with its quiet hours it takes more
    assert 1.3 <= smallest.min() <= smallest.max() <= 2.0
    assert between(shifted, 0, 1440)["prompt_tokens_smallest_detectable_ratio"].is_null().all()
