"""What is "before" of a server without a baseline: the median of its own last days."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import polars as pl
import pytest
from detector_cases import START, minutes_of, play

from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.last_days import day_before, learn_day, with_last_days
from driftwatch.detect.reference import REFERENCE_SCHEMA, declared, no_reference
from driftwatch.detect.references import References
from driftwatch.model import TargetKey
from driftwatch.pipeline.detection import Detection

KEY = TargetKey("a:8000", "0")
DAY = timedelta(days=1)


def day_of(midnight: datetime, *, hits: float, hours: int = 24) -> pl.DataFrame:
    """Minutes of the 24 hours that a midnight learns, with this share of prefix hits."""
    since, until = day_before(midnight)
    rows = minutes_of(60 * hours, ["a:8000"])
    return rows.with_columns(
        end=pl.col("end") - START + until - timedelta(hours=hours),
        prefix_cache_queries_total=pl.col("prompt_tokens_total"),
        prefix_cache_hits_total=hits * pl.col("prompt_tokens_total"),
    ).filter(pl.col("end") > since)


def learnt(days: Mapping[int, float], hours: int = 24) -> References:
    references = References()
    for number, hits in days.items():
        midnight = START + number * DAY
        day = day_of(midnight, hits=hits, hours=hours)
        references = references.with_more(learn_day(day, references, midnight))
    return references


def before_of(references: References, at: datetime, **rows: pl.DataFrame) -> dict[str, object]:
    measured, tuned = rows.get("measured", no_reference()), rows.get("declared", no_reference())
    found = with_last_days(measured, tuned, references, at.date())
    assert dict(found.schema) == REFERENCE_SCHEMA
    return found.row(0, named=True) if len(found) else {}


def test_one_day_of_trouble_does_not_become_usual() -> None:
    references = learnt({1: 0.6, 2: 0.58, 3: 0.1})
    row = before_of(references, START + 3 * DAY)
    assert row["reference_prefix_cache_hit_ratio"] == pytest.approx(0.58)
    assert row["kind"] is None
    assert row["reference_tokens_per_output"] == pytest.approx(1.0, abs=0.02)
    assert row["reference_prompt_tokens_mean"] is None


def test_no_more_than_seven_days_and_none_of_the_future_count() -> None:
    references = learnt({n: 0.1 * min(n, 9) for n in range(1, 10)})
    assert len(references.last_days("chat", KEY).days) == 7
    row = before_of(references, START + 4 * DAY)
    assert row["reference_prefix_cache_hit_ratio"] == pytest.approx(0.35)


def test_of_a_pool_with_two_names_the_newest_counts() -> None:
    references = learnt({1: 0.6})
    day = day_of(START + 2 * DAY, hits=0.3).with_columns(pool=pl.lit("renamed"))
    references = references.with_more(learn_day(day, references, START + 2 * DAY))
    found = with_last_days(no_reference(), no_reference(), references, (START + 2 * DAY).date())
    assert found["reference_prefix_cache_hit_ratio"].to_list() == pytest.approx([0.3])


def test_who_is_not_there_for_a_week_loses_them() -> None:
    rows = minutes_of(60 * 24, ["b:8000"])
    for days, kept in ((6, 1), (8, 0)):
        away = References().with_more(
            [replace(one, learnt_at=START - (days - 1) * DAY) for one in learnt({0: 0.6})]
        )
        assert len(away.last_days("chat", KEY).days) == 1

        def leaves(detection: Detection, _: datetime, away: References = away) -> Detection:
            references = detection.references.with_more(list(away))
            return Detection(detection.work, references).without([KEY], keep_days=True)

        _, detection = play(rows, cuts=[START + timedelta(hours=1)], between=leaves)
        assert len(detection.references.last_days("chat", KEY).days) == kept


def test_half_a_day_is_none() -> None:
    assert before_of(learnt({1: 0.6}, hours=11), START + DAY) == {}


def test_a_baseline_says_it_and_tuned_for_keeps_what_it_declares() -> None:
    references = learnt({1: 0.6})
    lengths = {"reference_prompt_tokens_mean": 500.0, "reference_generation_tokens_mean": 100.0}
    tuned = declared([{"instance": KEY.instance, "engine": KEY.engine, **lengths}])
    row = before_of(references, START + DAY, declared=tuned)
    assert (row["kind"], row["reference_prompt_tokens_mean"]) == ("tuned_for", 500.0)
    assert row["reference_prefix_cache_hit_ratio"] == pytest.approx(0.6)
    measured = tuned.with_columns(kind=pl.lit("pin"), reference_prefix_cache_hit_ratio=0.3)
    row = before_of(references, START + DAY, measured=measured)
    assert row["reference_prefix_cache_hit_ratio"] == 0.3


def test_a_midnight_learns_of_whom_no_baseline_is_accepted() -> None:
    rows = minutes_of(60 * 24, ["a:8000"])
    _, detection = play(rows, cuts=[START + timedelta(hours=k) for k in range(1, 24)])
    assert len(detection.references.last_days("chat", KEY).days) == 1
    baseline = Baseline(
        *("b", "pool", None, None, "chat", START - DAY, START, "sre", START, "good")
    )
    _, detection = play(
        rows,
        cuts=[START + timedelta(hours=k) for k in range(1, 24)],
        baselines=Baselines((baseline,)),
    )
    assert detection.references.last_days("chat", KEY).days == ()
