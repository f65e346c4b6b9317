"""The last 24 h against the pin: what is stale, what only a Sunday is, and what is unknown."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from trend_cases import DAY, MONDAY, folded, pin_of, recorded, tiled

from driftwatch.detect.baselines import Baselines
from driftwatch.detect.settings import DetectSettings
from driftwatch.detect.trend.stale import SHIPPED_USUAL

HOUR = timedelta(hours=1)
SCORE, MOVED = "generation_tokens_pin_score", "pin_lengths_moved"


@pytest.fixture(scope="module")
def usual(shared_data: Path) -> pl.DataFrame:
    return recorded(shared_data / "vllm-0.32" / "run_slow")


@pytest.fixture(scope="module")
def longer(shared_data: Path) -> pl.DataFrame:
    """A minute of generations four times as long as before, of another recording."""
    folder = shared_data / "vllm-0.32" / "run_main"
    phases = json.loads((folder / "phases.json").read_text())["phases"]
    phase = next(p for p in phases if p["name"] == "gen_drift_4x")
    end = pl.col("end").dt.timestamp("ms") / 1000
    inside = recorded(folder).filter((end - 60 >= phase["start"]) & (end <= phase["end"]))
    assert len(inside) >= 1
    return inside


def told(
    every: pl.DataFrame, pins: Baselines, settings: DetectSettings | None = None
) -> pl.DataFrame:
    return folded(every, pins=pins, settings=settings or DetectSettings())[0]


def at(found: pl.DataFrame, end: datetime) -> dict[str, object]:
    return found.filter(pl.col("end") == end).row(0, named=True)


def changed(
    usual: pl.DataFrame, longer: pl.DataFrame, change: datetime, until: datetime
) -> pl.DataFrame:
    return pl.concat([tiled(usual, MONDAY, change), tiled(longer, change, until)])


def test_a_change_that_stays_is_stale_a_few_hours_after_it_fills_the_day(
    usual: pl.DataFrame, longer: pl.DataFrame
) -> None:
    change = MONDAY + 2 * DAY
    every = changed(usual, longer, change, change + 30 * HOUR)
    found = told(every, Baselines((pin_of(every, MONDAY, MONDAY + DAY),)))
    minute = timedelta(minutes=1)
    before = found.filter(pl.col("end") <= change)
    assert before[MOVED].drop_nulls().to_list() == [False] * before[MOVED].count()
    assert before[MOVED].count() == 1440  # known from the second day on: 24 h are whole then
    assert before[SCORE].max() < 0.3
    assert at(found, change + 30 * HOUR)[MOVED] is True
    assert at(found, change + 30 * HOUR)[SCORE] > 1.5
    first = found.filter(pl.col(MOVED))["end"].min()
    assert change + 3 * HOUR < first <= change + 24 * HOUR
    assert first.minute == 1  # with the first minute after an hour
    gone = found.filter((pl.col("end") > first - minute) & (pl.col("end") <= change + 30 * HOUR))
    assert gone[MOVED].all()


def test_the_score_is_the_distance_over_what_is_usual(
    usual: pl.DataFrame, longer: pl.DataFrame
) -> None:
    every = changed(usual, longer, MONDAY + DAY, MONDAY + 2 * DAY + HOUR)
    found = told(every, Baselines((pin_of(every, MONDAY, MONDAY + DAY),)))
    p, q = (
        np.diff(np.array(m["generation_tokens_buckets"].to_list()).sum(axis=0), prepend=0.0)
        for m in (
            every.filter(pl.col("end") <= MONDAY + DAY),
            every.filter((pl.col("end") > MONDAY + DAY) & (pl.col("end") <= MONDAY + 2 * DAY)),
        )
    )
    p, q = p / p.sum(), q / q.sum()
    m = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        js = np.sqrt(np.nansum([p * np.log2(p / m), q * np.log2(q / m)]) / 2)
    score = at(found, MONDAY + 2 * DAY + HOUR)[SCORE]
    assert score == pytest.approx(js / SHIPPED_USUAL, rel=1e-3)


@pytest.mark.slow
def test_a_weekend_is_no_reason_to_tune_again(usual: pl.DataFrame, longer: pl.DataFrame) -> None:
    saturday = MONDAY + 5 * DAY
    weekend = tiled(longer, saturday, saturday + 2 * DAY)
    workdays = tiled(usual, MONDAY, saturday)
    after = tiled(usual, saturday + 2 * DAY, saturday + 4 * DAY)
    every = pl.concat([workdays, weekend, after])
    pin = pin_of(every, MONDAY, MONDAY + DAY)
    found = told(every, Baselines((pin,)))
    # told: the lengths are others
    assert at(found, saturday + 47 * HOUR)[SCORE] > 1.0
    assert not found[MOVED].drop_nulls().any()
    # a pin that has both parts of the week is one that a weekend can be compared with
    both = replace(pin, since=MONDAY - 2 * DAY)
    assert told(every, Baselines((both,)))[MOVED].any()
    # and a holiday is as a weekend: on Wednesday nothing is judged
    wednesday = MONDAY + 2 * DAY
    holiday = pl.concat(
        [tiled(usual, MONDAY, wednesday), tiled(longer, wednesday, wednesday + DAY)]
    )
    closed = DetectSettings(holidays={wednesday.date(): "Buss- und Bettag"})
    pins = Baselines((pin_of(holiday, MONDAY, MONDAY + DAY),))
    assert told(holiday, pins)[MOVED].any()
    assert not told(holiday, pins, closed)[MOVED].any()


def test_what_cannot_be_compared_is_unknown(usual: pl.DataFrame) -> None:
    every = tiled(usual, MONDAY, MONDAY + 2 * DAY)
    day = pin_of(every, MONDAY, MONDAY + DAY)
    assert told(every, Baselines((day,)))[MOVED].count() == 1440
    unknown = {
        "no pin": Baselines(),
        "a pin of two hours": Baselines((pin_of(every, MONDAY, MONDAY + 2 * HOUR),)),
        "declared means only": Baselines(
            (
                replace(
                    day,
                    reference=day.reference.with_columns(
                        pl.lit(None, pl.List(pl.Float64)).alias(f"reference_{s}_{part}")
                        for s in ("prompt_tokens", "generation_tokens")
                        for part in ("buckets", "edges")
                    ),
                ),
            )
        ),
    }
    for why, pins in unknown.items():
        found = told(every, pins)
        assert found[MOVED].count() == 0, why
        assert found[SCORE].count() == 0, why
    half = every.filter((pl.col("end") <= MONDAY + DAY) | (pl.col("end").dt.hour() % 4 == 0))
    assert (
        told(half, Baselines((day,)))
        .filter(pl.col("end") > MONDAY + 2 * DAY - 6 * HOUR)[MOVED]
        .count()
        == 0
    )
