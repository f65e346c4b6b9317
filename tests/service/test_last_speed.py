"""A slowed engine whose batch left the range its baseline knows is still a slowed engine."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from driftwatch.model import Serving
from driftwatch.pipeline.minutes import since_slow, with_last_speed
from driftwatch.recommend.advice import Question
from driftwatch.recommend.advise import advise
from driftwatch.recommend.server import Server
from driftwatch.signals.minutes import no_minutes

UNKNOWN = {"slower_at_equal_load": None, "speed_at_equal_load_ratio": None}


def _past(*slower: bool | None, **changed: list[bool | None]) -> pl.DataFrame:
    ratios = [None if one is None else 0.69 if one else 1.0 for one in slower]
    return pl.DataFrame(
        {"slower_at_equal_load": slower, "speed_at_equal_load_ratio": ratios, **changed},
        schema_overrides={
            "slower_at_equal_load": pl.Boolean,
            "speed_at_equal_load_ratio": pl.Float64,
            **dict.fromkeys(changed, pl.Boolean),
        },
    )


def test_what_was_last_known_holds_while_it_is_unknown() -> None:
    row = with_last_speed(UNKNOWN, _past(False, True, True, None, None))
    assert row["slower_at_equal_load"] is True
    assert row["speed_at_equal_load_ratio"] == 0.69
    # and no knob is asked for
    said = advise(
        Question(datetime(2026, 1, 1, tzinfo=UTC), no_minutes(), Server(Serving()), evidence=row)
    ).advice
    assert (said.action, said.moves) == ("none", ())
    assert "slower at equal load: 31 %" in said.why


@pytest.mark.parametrize(
    ("row", "past"),
    [
        (UNKNOWN, _past(True, False, None)),  # it recovered
        (UNKNOWN, _past(None, None)),
        (UNKNOWN, no_minutes()),
        ({"slower_at_equal_load": False}, _past(True, True)),  # it is known now
        (UNKNOWN, _past(True, True, None, restarted=[False, False, True])),  # another engine
        (UNKNOWN, _past(True, None, None, configuration_changed=[None, True, None])),
    ],
)
def test_what_is_known_now_or_was_of_another_engine_does_not(
    row: dict[str, object], past: pl.DataFrame
) -> None:
    assert with_last_speed(row, past) == row


def test_minutes_of_a_slow_engine_are_no_law_of_one_that_recovered() -> None:
    assert len(since_slow(_past(False, True, True, None, False, False))) == 3
    # it may be slow still: then no knob is asked for, and nothing is cut
    for past in (_past(False, True, True, None), _past(False, False, None), no_minutes()):
        assert since_slow(past).equals(past)
