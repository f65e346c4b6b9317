"""When a delivery is tried again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

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


@pytest.mark.parametrize(("asked", "least", "most"), [(90, 90, 3600), (1e9, 3600, 3600)])
def test_what_a_receiver_asks_for_is_waited_out(asked: float, least: float, most: float) -> None:
    assert least <= delay(1, asked=asked) <= most
