from __future__ import annotations

import numpy as np
import pytest

from driftwatch.lab.padding import batches_padding, padded_lengths, padding, used_ratios

FOLKLORE = [64, 128, 256, 512, 1024] * 2


def test_the_claims_recomputed() -> None:
    assert padding(FOLKLORE).waste_ratio == pytest.approx(1 - 1984 / 5120)
    assert padding(FOLKLORE, (128, 256, 512, 1024, 2048)).waste_ratio == pytest.approx(1 / 32)
    assert padding(FOLKLORE, (128, 512, 1024)).waste_ratio == pytest.approx(320 / 2304)
    assert used_ratios([10, 1000, 50]) == pytest.approx([0.01, 1.0, 0.05])


def test_a_length_above_the_last_bucket_gets_the_longest() -> None:
    assert padded_lengths([5, 200, 300], (8, 100)).tolist() == [8, 300, 300]
    assert padded_lengths([5, 7], (8, 100)).tolist() == [8, 8]


@pytest.mark.parametrize("size", [1, 7, 32, 5000])
def test_batches_in_their_order_one_by_one(size: int) -> None:
    lengths = np.random.default_rng(size).integers(1, 3000, 1000)
    spent = sum(
        len(batch) * max(batch)
        for batch in (lengths[i : i + size].tolist() for i in range(0, 1000, size))
    )
    found = batches_padding(lengths, size)
    assert (found.useful_tokens, found.padded_tokens) == (lengths.sum(), spent)
    assert found.waste_ratio == pytest.approx(1 - lengths.sum() / spent)
    if size == 1:
        assert found.waste_ratio == 0


@pytest.mark.parametrize(
    ("lengths", "buckets", "said"),
    [
        ([], (), "no lengths"),
        ([3, 0], (), "at least 1 token"),
        ([3], (8, 8), "rise"),
        ([3], (0, 8), "at least 1"),
    ],
)
def test_what_cannot_be_is_named(lengths: list[int], buckets: tuple[int, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        padding(lengths, buckets)
    if lengths:
        with pytest.raises(ValueError, match="size"):
            batches_padding(lengths, 0)
