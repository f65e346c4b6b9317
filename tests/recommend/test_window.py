"""Which minutes an answer is made from: undisturbed, and since the traffic is as it is now."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from engine_minutes import START, by_hand

from driftwatch.errors import NoVerdict
from driftwatch.recommend.window import Window, arrivals, rise, steady, undisturbed

EDGES = [[10.0, 100.0, np.inf]]


def _flag(row: int, minutes: int = 20) -> list[bool]:
    return [number == row for number in range(minutes)]


@pytest.mark.parametrize(
    ("columns", "minutes", "said"),
    [
        ({}, 20, None),
        # the minute of a restart holds some of both engines
        ({"restarted": _flag(7)}, 12, "before 03:08 UTC not used: a restart"),
        ({"configuration_changed": _flag(9)}, 10, "a change of its settings"),
        ({"release_changed": _flag(11)}, 8, "a change of its release"),
        ({"prompt_tokens_edges": EDGES * 12 + [[10.0, np.inf]] * 8}, 8, "other histogram buckets"),
        # alone it is all there is
        ({"restarted": _flag(19)}, 1, "before 03:19 UTC not used: a restart"),
        # one lost minute is bridged, three are not; a minute seen for seconds does not count
        ({"scrapes": [4.0] * 9 + [0.0] + [4.0] * 10}, 19, None),
        ({"scrapes": [4.0] * 9 + [0.0] * 3 + [4.0] * 8}, 8, "a gap without scrapes"),
        ({"duration_seconds": [60.0] * 19 + [10.0]}, 19, None),
    ],
)
def test_the_stretch_ends_at_what_disturbed_it(
    columns: dict[str, Any], minutes: int, said: str | None
) -> None:
    window = undisturbed(by_hand(20, **columns))
    assert len(window.rows) == minutes
    assert bool(window.notes) == (said is not None)
    assert said is None or said in window.notes[0]


def test_the_clock_of_a_stretch_is_that_of_its_first_minute() -> None:
    assert undisturbed(by_hand(20, restarted=_flag(7))).start == START + timedelta(minutes=8)
    with pytest.raises(NoVerdict, match="no minute with a usable scrape"):
        undisturbed(by_hand(3, scrapes=0.0))


def _traffic(
    rate: list[float] | float, prompt: list[float] | float = 500.0, *, minutes: int = 40
) -> Window:
    """Poisson counts of so many a minute, their mean prompt with the noise of a mean."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(np.broadcast_to(rate, minutes)).astype(float)
    mean = np.broadcast_to(prompt, minutes) * np.exp(0.05 * rng.standard_normal(minutes))
    return Window(
        by_hand(
            minutes,
            ttft_seconds_count=counts,
            prompt_tokens_sum=counts * mean,
            prompt_tokens_count=counts,
            generation_tokens_sum=counts * 200.0,
            generation_tokens_count=counts,
        )
    )


@pytest.mark.parametrize(
    ("rate", "prompt", "minutes"),
    [
        (300.0, 500.0, 40),
        ([300.0] * 25 + [600.0] * 15, 500.0, 15),  # more requests
        (300.0, [500.0] * 30 + [2000.0] * 10, 10),  # longer prompts
        ([300.0] * 34 + [60.0] * 6, 500.0, 40),  # a lull
        ([300.0] * 25 + [60.0] * 15, 500.0, 15),  # it lasts: no lull
        ([300.0, 900.0] * 20, 500.0, 40),  # waves
    ],
)
def test_a_window_begins_where_rate_and_lengths_became_why_no_vllm(
    rate: list[float] | float, prompt: list[float] | float, minutes: int
) -> None:
    window = steady(_traffic(rate, prompt))
    assert len(window.rows) == pytest.approx(minutes, abs=1)
    assert any("when it changed" in note for note in window.notes) is (minutes < 40)


def test_a_load_that_still_rises_is_told_from_chance() -> None:
    growing = np.linspace(1.0, 2.0, 40)
    assert rise(_traffic(300.0)) == 1.0
    assert rise(_traffic((300.0 * growing).tolist())) == pytest.approx(1.83 / 1.5, rel=0.05)
    assert rise(_traffic(300.0, (500.0 * growing).tolist())) > 1.0
    assert rise(_traffic((300.0 * growing[:9]).tolist(), minutes=9)) == 1.0  # too few minutes


def test_arrivals_are_first_tokens_and_the_growth_of_the_queue() -> None:
    """600 come each minute, the server takes 480: what waits at the minutes' edges grows by 120."""
    waiting = 60.0 + 120.0 * np.arange(10)  # in the middle of each minute
    rows = by_hand(10, ttft_seconds_count=480.0, waiting_requests=waiting)
    came = arrivals(Window(rows))
    assert came[1:-1] == pytest.approx(600.0)
    assert came[[0, -1]] == pytest.approx(540.0)  # half a minute of growth is not known
    # a scrape that told no queue is bridged; without first tokens those that finished count
    waiting[4] = np.nan
    unseen = rows.with_columns(
        waiting_requests=pl.Series(waiting).fill_nan(None),
        ttft_seconds_count=pl.lit(None, pl.Float64),
        generation_tokens_count=pl.lit(480.0),
    )
    assert arrivals(Window(unseen))[1:-1] == pytest.approx(600.0)
    with pytest.raises(NoVerdict, match="time_to_first_token not on the page"):
        arrivals(Window(by_hand(10, waiting_requests=0.0)))


def test_unknown_is_never_zero() -> None:
    window = Window(by_hand(3, itl_seconds_sum=[1.0, None, 1.0], itl_seconds_count=10.0))
    assert window.total("itl_seconds_sum") is None
    assert window.ratio("itl_seconds_sum", "itl_seconds_count") is None
    assert window.total("itl_seconds_count") == 30.0
    assert window.mean("running_requests") is None
