"""How far a baseline's mean lengths go by themselves, and for how long that answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from driftwatch.detect.reference import MONTH_BLOCKS, swings, usual_ratio
from driftwatch.detect.reference_minutes import baseline_of_minutes
from driftwatch.signals.minutes import no_minutes

START = datetime(2026, 11, 16, tzinfo=UTC)


def of_blocks(
    means: np.ndarray, *, requests: float = 300.0, instance: str = "a:8000"
) -> pl.DataFrame:
    """Minutes whose ten-minute means of prompts are these; generations never move."""
    size = len(means) * 10
    minutes = pl.DataFrame(
        {
            "instance": [instance] * size,
            "engine": ["0"] * size,
            "pool": ["p"] * size,
            "end": [START + timedelta(minutes=i + 1) for i in range(size)],
            "scrapes": [4] * size,
            "duration_seconds": [60.0] * size,
            "prompt_tokens_count": [requests / 10] * size,
            "prompt_tokens_sum": np.repeat(means, 10) * requests / 10,
            "generation_tokens_count": [requests / 10] * size,
            "generation_tokens_sum": [20.0 * requests] * size,
        }
    )
    return pl.concat([no_minutes(), minutes], how="diagonal_relaxed")


def prompts(minutes: pl.DataFrame) -> float | None:
    (found,) = swings(minutes)["reference_prompt_tokens_usual_ratio"].to_list()
    return None if found is None else float(found)


@pytest.mark.parametrize("blocks", [12, 36])
def test_swings_with_exponential_tails_are_gone_beyond_once_a_month(blocks: int) -> None:
    """The null that it is made for, at any length of the baseline: one in MONTH_BLOCKS."""
    rng = np.random.default_rng(40 + blocks)
    size, beyond = 0.2, []
    for _ in range(150):
        ratio = prompts(of_blocks(1000 * np.exp(rng.laplace(0, size, blocks))))
        assert ratio is not None
        beyond.append(np.exp(-np.log(ratio) / size))  # P(|x| > u) of this tail
    median = float(np.median(beyond)) * MONTH_BLOCKS
    assert 0.1 < median < 3


def test_steady_lengths_need_little_and_bursty_ones_much() -> None:
    rng = np.random.default_rng(7)
    steady = prompts(of_blocks(1000 * np.exp(rng.normal(0, 0.02, 144))))
    bursty = prompts(of_blocks(1000 * np.exp(rng.laplace(0, 0.3, 144))))
    assert steady is not None and bursty is not None
    assert 1.0 < steady < 1.2 and bursty > 3


def test_less_than_an_hour_says_nothing() -> None:
    means = np.linspace(900, 1100, 6)  # of ten minutes each
    assert prompts(of_blocks(means)) is not None
    assert prompts(of_blocks(means[1:])) is None
    assert prompts(of_blocks(means, requests=90)) is None  # each of too few requests


def test_a_pool_has_the_swings_of_the_target_that_swings_most() -> None:
    calm, wild = np.tile([990.0, 1010.0], 6), np.tile([700.0, 1300.0], 6)
    minutes = pl.concat([of_blocks(calm), of_blocks(wild, instance="b:8000")])
    (together,) = baseline_of_minutes(minutes, "p")["reference_prompt_tokens_usual_ratio"]
    assert together == pytest.approx(prompts(of_blocks(wild)))


@pytest.mark.parametrize(
    ("hours", "after", "known"), [(2, 1.9, True), (2, 2.1, False), (20, 1000, True)]
)
def test_a_baseline_shorter_than_a_day_answers_for_as_long_as_it_lasted(
    hours: float, after: float, known: bool
) -> None:
    until = START + timedelta(hours=hours)
    row = pl.DataFrame(
        {
            "reference_since": [START],
            "reference_until": [until],
            "end": [until + timedelta(hours=after)],
            "reference_prompt_tokens_usual_ratio": [1.4],
        }
    )
    assert row.select(usual_ratio("prompt_tokens")).item() == (1.4 if known else None)
