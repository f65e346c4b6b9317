from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from driftwatch.recommend.traffic.lengths import paired

BLOCK = 16


@pytest.fixture(scope="module", params=["azure_2023_conv", "azure_2023_code"])
def trace(
    shared_data: Path, request: pytest.FixtureRequest
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = pl.read_csv(shared_data / "traces" / f"{request.param}.csv.gz")
    prompt = rows["ContextTokens"].to_numpy().astype(np.int64)
    generation = np.maximum(rows["GeneratedTokens"].to_numpy().astype(np.int64), 1)
    return prompt, generation, np.arange(len(prompt)) * 60 // len(prompt)


def held(prompt: np.ndarray, generation: np.ndarray) -> float:
    """Tokens per running request, by a request's whole life."""
    mine = generation * (prompt + (generation + BLOCK) / 2)
    return float(mine.sum() / generation.sum())


def shuffled(prompt: np.ndarray, row: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(1)
    return prompt[np.lexsort((rng.random(len(prompt)), row))]


def test_the_pairing_of_a_real_trace_is_found_again_from_what_the_cache_holds(
    trace: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    prompt, generation, row = trace
    true = held(prompt, generation)
    lost = shuffled(prompt, row)
    found = paired(lost, generation, row, true, BLOCK, 0.0, np.random.default_rng(2))
    assert held(found, generation) == pytest.approx(true, rel=2e-3)
    assert abs(held(lost, generation) / true - 1) > 5e-3
    for number in (0, 31, 59):  # every minute keeps its prompts
        assert np.array_equal(np.sort(found[row == number]), np.sort(prompt[row == number]))


def test_hits_that_may_be_shared_explain_a_low_use(
    trace: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    prompt, generation, row = trace
    lost = shuffled(prompt, row)
    low = 0.9 * held(lost, generation)
    unexplained = paired(lost, generation, row, low, BLOCK, 0.0, np.random.default_rng(2))
    assert held(unexplained, generation) == pytest.approx(low, rel=2e-3)
    explained = paired(lost, generation, row, low, BLOCK, 0.3, np.random.default_rng(2))
    assert held(explained, generation) == pytest.approx(held(lost, generation), rel=0.05)


def test_what_no_pairing_reaches_is_come_near_to(
    trace: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    prompt, generation, row = trace
    most = paired(prompt, generation, row, 1e9, BLOCK, 0.0, np.random.default_rng(2))
    least = paired(prompt, generation, row, 1.0, BLOCK, 0.0, np.random.default_rng(2))
    assert held(least, generation) < held(prompt, generation) < held(most, generation)
