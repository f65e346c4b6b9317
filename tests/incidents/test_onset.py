"""When a condition began: made minutes with a step of known time, noise and ramps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from statistics import median

import numpy as np
import polars as pl
import pytest

from driftwatch.model import TargetKey
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.onset import change_point, condition_onset
from driftwatch.store.minute_columns import STORED_SCHEMA

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
KEY = TargetKey("host:8000", "0")


def noisy(seed: int, step: int, noise: float, ramp: int = 1) -> list[float]:
    """80 minutes around 1.0, from ``step`` on twice as much, reached within ``ramp`` minutes."""
    way = np.clip((np.arange(80) - step + 1) / ramp, 0.0, 1.0)
    return list(1.0 + way + np.random.default_rng(seed).normal(0.0, noise, 80))


@pytest.mark.parametrize(
    ("step", "noise", "ramp"),
    [(20, 0.05, 1), (70, 0.05, 1), (50, 0.3, 1), (50, 0.5, 1), (60, 0.1, 10), (74, 0.1, 1)],
)
def test_a_step_is_found_within_five_minutes(step: int, noise: float, ramp: int) -> None:
    found = [change_point(noisy(seed, step, noise, ramp), normal=1.0) for seed in range(40)]
    errors = [abs(place - step) for place in found if place is not None]
    assert len(errors) == 40
    assert median(errors) <= 5


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ([2.0] * 80, 0),  # it left the level before the first one
        ([1.0] * 80, None),
        ([1.0] * 3 + [2.0] * 3, 3),
        ([1.0] * 2 + [2.0] * 3, None),  # too few
        ([1.0] * 30 + [2.0] * 10 + [1.0] * 30 + [2.0] * 10, 70),  # an earlier wave is over
    ],
)
def test_what_left_before_and_what_is_unknown(values: list[float], place: int | None) -> None:
    assert change_point(values, normal=1.0) == place


def stored(**columns: list[float]) -> PastMinutes:
    """The 80 minutes before AT of one server."""
    ends = [AT - timedelta(minutes=79 - i) for i in range(80)]
    frame = pl.DataFrame({"instance": ["host:8000"] * 80, "engine": ["0"] * 80, "end": ends})
    frame = frame.with_columns(pl.Series(name, values) for name, values in columns.items())
    return PastMinutes(
        None,
        [
            frame.select(
                (pl.col(n) if n in frame.columns else pl.lit(None)).cast(t).alias(n)
                for n, t in STORED_SCHEMA.items()
            )
        ],
    )


SPEED = stored(speed_at_equal_load_ratio=[1.0] * 40 + [0.8] * 40)
NEWER = stored(
    speed_at_equal_load_ratio=[1.0] * 40 + [0.8] * 40,
    release_changed=[float(minute == 45) for minute in range(80)],
)
DRIFT = stored(
    prompt_tokens_sum=[1e4] * 60 + [2e4] * 20,
    prompt_tokens_count=[10.0] * 80,
    limit_binding_share_10m_ratio=[0.1] * 66 + [0.1 * i for i in range(2, 11)] + [1.0] * 5,
)
SUDDEN = stored(speed_at_equal_load_ratio=[1.0] * 78 + [0.87, 0.76])
AFTER_A_HANG = stored(
    limit_binding_share_10m_ratio=[0.1] * 40 + [0.9] * 40,
    seconds_since_last_token=[0.0] * 60 + [150.0] * 5 + [0.0] * 15,
)
LONG = stored(
    prompt_tokens_sum=[2e4] * 80,
    prompt_tokens_count=[10.0] * 80,
    limit_binding_share_10m_ratio=[0.1] * 70 + [0.9] * 10,
)


@pytest.mark.parametrize(
    ("columns", "past", "minutes_before"),
    [
        ({"slower_at_equal_load"}, SPEED, 42),  # a median of six minutes,
        ({"slower_at_equal_load"}, NEWER, 35),  # not before the release that is slower
        ({"slower_at_equal_load"}, SUDDEN, 4),  # before five minutes are slow
        ({"limit_full", "target_missed"}, AFTER_A_HANG, None),  # what was before it is no begin
        ({"prompt_tokens_drift"}, DRIFT, 20),
        ({"limit_full", "lengths_moved", "target_missed"}, DRIFT, 20),
        ({"limit_full", "target_missed"}, DRIFT, 13),
        # lengths that moved long ago are not what made the limit full now
        ({"limit_full", "lengths_moved"}, LONG, 10),
        ({"prompt_tokens_drift"}, LONG, 80),
        ({"gpus_lost"}, SPEED, None),
        ({"slower_at_equal_load"}, PastMinutes(), None),
    ],
)
def test_each_rule_has_its_measure(
    columns: set[str], past: PastMinutes, minutes_before: int | None
) -> None:
    evidence = {"reference_prompt_tokens_mean": 1000.0}
    since = condition_onset(columns, [KEY], AT, evidence, past)
    expected = None if minutes_before is None else AT - timedelta(minutes=minutes_before)
    assert since == expected
