"""When a failed delivery is tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.receivers.sender import MOST_ATTEMPTS, next_attempt

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

repeatable = settings(deadline=None, derandomize=True, database=None)


def delay(attempts: int, key: str = "k", retry_after_seconds: float | None = None) -> float:
    at = next_attempt(attempts, NOW, key, retry_after_seconds)
    assert at is not None
    return (at - NOW).total_seconds()


@pytest.mark.parametrize(
    ("attempts", "middle"), [(1, 5), (2, 10), (3, 20), (6, 160), (7, 300), (17, 300)]
)
def test_it_doubles_from_5_seconds_to_5_minutes(attempts: int, middle: float) -> None:
    assert 0.8 * middle <= delay(attempts) <= 1.2 * middle


def test_it_gives_up_after_about_an_hour() -> None:
    spent = sum(delay(attempts) for attempts in range(1, MOST_ATTEMPTS))
    assert 0.8 * 3615 <= spent <= 1.2 * 3615
    assert next_attempt(MOST_ATTEMPTS, NOW, "k") is None
    assert next_attempt(MOST_ATTEMPTS, NOW, "k", retry_after_seconds=10) is None


def test_jitter_comes_from_the_key() -> None:
    delays = {delay(5, key=f"delivery {n}") for n in range(50)}
    assert len(delays) > 40
    assert max(delays) - min(delays) > 0.2 * 80  # 80 s ± 20 % is 32 s wide
    assert delay(5, "a") == delay(5, "a")
    assert delay(5, "a") / 80 != delay(6, "a") / 160


@pytest.mark.parametrize(
    ("asked", "waits"), [(900.0, 900.0), (1e12, 3600.0), (float("inf"), 3600.0)]
)
def test_retry_after_is_waited_out_up_to_an_hour(asked: float, waits: float) -> None:
    assert delay(1, retry_after_seconds=asked) == waits


@pytest.mark.parametrize("asked", [None, 0.0, -5.0, float("nan"), 0.5])
def test_retry_after_never_shortens_the_wait(asked: float | None) -> None:
    assert delay(3, retry_after_seconds=asked) == delay(3)


@pytest.mark.parametrize("attempts", [0, -1])
def test_no_attempt_is_a_mistake_of_the_caller(attempts: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        next_attempt(attempts, NOW, "k")


@repeatable
@given(st.integers(1, 200), st.text(), st.none() | st.floats())
def test_it_is_later_than_now_or_never(attempts: int, key: str, asked: float | None) -> None:
    at = next_attempt(attempts, NOW, key, asked)
    assert (at is None) == (attempts >= MOST_ATTEMPTS)
    if at is not None:
        assert timedelta(seconds=4) <= at - NOW <= timedelta(hours=1)


@pytest.mark.parametrize(
    ("attempts", "minutes", "is_over"), [(3, 59, False), (3, 60, True), (2, 600, False)]
)
def test_an_hour_is_enough_where_attempts_are_few(
    attempts: int, minutes: int, is_over: bool
) -> None:
    """A receiver that asks for an hour each time, or whose queue is long."""
    planned_at = NOW - timedelta(minutes=minutes)
    assert (next_attempt(attempts, NOW, "k", 3600.0, planned_at) is None) == is_over
