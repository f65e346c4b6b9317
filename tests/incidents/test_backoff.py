"""When a delivery is tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftwatch.receivers.sender import next_attempt

NOW = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)


def delay(attempts: int, key: str = "k", asked: float | None = None) -> float:
    at = next_attempt(attempts, NOW, key, NOW, asked)
    assert at is not None
    return (at - NOW).total_seconds()


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 5), (2, 10), (6, 160), (7, 300), (500, 300)])
def test_the_delay_doubles_up_to_five_minutes(attempts: int, seconds: float) -> None:
    assert 0.8 * seconds <= delay(attempts) <= 1.2 * seconds


def test_two_that_failed_together_are_not_asked_together() -> None:
    assert len({delay(3, f"incident/{n}") for n in range(20)}) == 20


@pytest.mark.parametrize(("hours", "over"), [(23.9, False), (24.0, True)])
def test_it_is_given_up_after_a_day(hours: float, over: bool) -> None:
    planned_at = NOW - timedelta(hours=hours)
    assert (next_attempt(2, NOW, "k", planned_at, 3600.0) is None) == over


@given(st.integers(1, 10_000), st.text(max_size=20), st.none() | st.floats(0, 1e9))
def test_what_a_receiver_asks_for_is_waited_out(
    attempts: int, key: str, asked: float | None
) -> None:
    seconds = delay(attempts, key, asked)
    assert min(asked or 0.0, 3600.0) <= seconds <= 3600.0
    assert delay(attempts, key, asked) == seconds
