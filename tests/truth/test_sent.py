"""What was really sent, and what follows from it: the truth of quiet moments, the folk rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from truth_judge.sent import Sent, leaf_of_traffic, sent

START = datetime(2026, 11, 16, tzinfo=UTC)
BEFORE = Sent(1000.0, 10.0, 512.0, 210.0)


def scrapes(*rows: tuple[float, float, float, float, bool]) -> pl.DataFrame:
    """(seconds, finished requests, prompt tokens, generation tokens, scraped)."""
    return pl.DataFrame(
        [
            {
                "instance": "a:8000",
                "time": START + timedelta(seconds=at),
                "ok": ok,
                "prompt_tokens_count": count,
                "prompt_tokens_sum": prompts,
                "generation_tokens_count": count,
                "generation_tokens_sum": generations,
            }
            for at, count, prompts, generations, ok in rows
        ]
    )


def test_counters_are_added_up_over_a_restart() -> None:
    found = scrapes(
        (0, 100, 1e6, 1e6, True),
        (10, 110, 1e6 + 5000, 1e6 + 2000, True),
        (20, 0, 0, 0, False),
        (30, 4, 2000, 800, True),  # began at 0 again
        (40, 10, 5000, 2000, True),
        (99, 900, 9e6, 9e6, True),
    )
    first = START.timestamp()
    now = sent(found, "a:8000", (first, first + 40))
    assert now == Sent(20.0, 0.5, 500.0, 200.0)
    assert sent(found, "b:8000", (first, first + 40)) is None
    assert sent(found, "a:8000", (first + 35, first + 45)) is None  # one scrape tells nothing


@pytest.mark.parametrize(
    ("prompts", "generations", "rate", "leaf"),
    [
        (1.0, 1.0, 1.0, "healthy"),
        (1.0, 1.0, 0.55, "healthy"),
        (1.0, 1.0, 0.4, None),
        (1.0, 1.0, 0.3, "request_rate_drop"),
        (1.45, 1.0, 1.0, None),
        (1.7, 1.0, 0.3, "drifted_within_limits"),
        (1.0, 0.7, 1.0, None),
        (1.0, 0.5, 1.0, "drifted_within_limits"),
    ],
)
def test_the_truth_of_a_quiet_moment_is_what_was_sent(
    prompts: float, generations: float, rate: float, leaf: str | None
) -> None:
    now = Sent(600.0, 10.0 * rate, 512.0 * prompts, 210.0 * generations)
    assert leaf_of_traffic(now, BEFORE) == leaf


def test_an_engine_that_generates_nothing_is_judged_by_its_prompts() -> None:
    before, now = Sent(1000.0, 10.0, 512.0, 0.0), Sent(600.0, 10.0, 520.0, 0.0)
    assert leaf_of_traffic(now, before) == "healthy"
    assert leaf_of_traffic(Sent(600.0, 10.0, 1100.0, 0.0), before) == "drifted_within_limits"
