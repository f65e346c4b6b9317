"""Lengths that moved: by the ratio of means, beyond the baseline's own swings."""

from __future__ import annotations

import polars as pl
import pytest
from detector_cases import START, at, minutes_of, play

from driftwatch.detect.reference import baseline_of_minutes

ONE = ("a:8000",)


def drifts(minutes: pl.DataFrame, reference: pl.DataFrame) -> dict[int, str | None]:
    """Number of the minute → ``prompt_tokens_drift``."""
    rows, _ = play(minutes, reference=reference)
    number = (pl.col("end") - START).dt.total_minutes()
    return dict(rows.select(number, "prompt_tokens_drift").iter_rows())


def reference_of(minutes: pl.DataFrame, until: int) -> pl.DataFrame:
    inside = minutes.filter(pl.col("end") <= at(until))
    return baseline_of_minutes(inside)


@pytest.mark.parametrize(("factor", "word"), [(2.0, "longer"), (0.5, "shorter")])
def test_a_mean_that_moved_for_18_of_20_minutes(factor: float, word: str) -> None:
    minutes = minutes_of(400, ONE, prompts=[(301, 360, factor)])
    found = drifts(minutes, reference_of(minutes, 240))
    moved = [number for number, drift in found.items() if drift == word]
    # beyond the bounds from the fifth or seventh minute of the other mix on
    assert moved[0] == {"longer": 322, "shorter": 324}[word]
    assert 360 <= moved[-1] <= 372
    assert {found[number] for number in (*range(240, 300), *range(380, 400))} == {"none"}


def test_less_than_half_as_long_again_is_no_drift() -> None:
    minutes = minutes_of(400, ONE, prompts=[(301, 360, 1.4)])
    assert set(drifts(minutes, reference_of(minutes, 240)).values()) == {"none"}


def test_what_the_baseline_did_itself_is_no_drift() -> None:
    swung = [(60, 90, 2.2), (150, 180, 0.4)]
    minutes = minutes_of(400, ONE, prompts=[*swung, (301, 360, 1.8)])
    reference = reference_of(minutes, 240)
    assert reference["reference_prompt_tokens_swing_high"][0][0] > 1.8
    assert set(drifts(minutes, reference).values()) == {"none"}


def test_no_reference_few_requests_and_overload_are_unknown() -> None:
    minutes = minutes_of(400, ONE, prompts=[(301, 360, 2.0)])
    reference = reference_of(minutes, 240)
    assert set(drifts(minutes, reference.clear()).values()) == {None}
    few = minutes.with_columns(pl.col("prompt_tokens_sum", "prompt_tokens_count") / 100)
    assert set(drifts(few, reference).values()) == {None}
    queued = minutes.with_columns(queue_seconds_sum=90.0 * pl.col("queue_seconds_count"))
    assert drifts(queued, reference)[340] is None
    begun = pl.col("ttft_seconds_count")
    for share, drift in ((0.05, "longer"), (0.3, None)):
        left = minutes.with_columns(given_up_requests=share * begun)
        assert drifts(left, reference)[340] == drift


def test_a_short_baseline_answers_as_long_again_as_it_lasted() -> None:
    minutes = minutes_of(400, ONE)
    found = drifts(minutes, reference_of(minutes, 150))
    assert found[300] == "none"
    assert found[301] is None


def test_from_seven_days_on_an_hour_has_swings_of_its_own() -> None:
    week = minutes_of(7 * 1440, ONE)
    hour = pl.col("end").dt.offset_by("-1m").dt.hour()
    busy = pl.when(hour == 3).then(pl.col("prompt_tokens_sum") * 3.0)
    week = week.with_columns(prompt_tokens_sum=busy.otherwise("prompt_tokens_sum"))
    high = baseline_of_minutes(week)["reference_prompt_tokens_swing_high"][0].to_list()
    assert len(high) == 24
    assert high[3] > 2 > high[12]


def test_of_a_pool_the_one_that_swings_most_counts() -> None:
    calm = minutes_of(300, ONE)
    wild = minutes_of(300, ("b:8000",), prompts=[(100, 150, 3.0)])
    both = baseline_of_minutes(pl.concat([calm, wild]), "chat")
    assert both["reference_prompt_tokens_swing_high"][0][0] > 2
