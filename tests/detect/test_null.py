"""The own null: daily histograms per key, their quantiles, and the way through the store."""

from __future__ import annotations

from datetime import date

import numpy as np
import polars as pl
import pytest

from driftwatch.detect.null import Null, day_number, null, null_from, quantiles

EDGES = np.linspace(0.0, 2.0, 201)
KEYS = pl.DataFrame({"instance": ["a", "b", "c"], "statistic": ["js", "js", "js"]})
DAY = day_number(date(2026, 11, 9))


def fed(days: int, per_day: int = 400, seed: int = 7, split: int = 1) -> tuple[Null, np.ndarray]:
    """Three keys of different scale, days long; the values by key."""
    rng = np.random.default_rng(seed)
    values = np.abs(rng.normal(size=(days * per_day, 3))) * [0.1, 0.2, 0.4]
    empty = null(EDGES, ["instance", "statistic"], days=7, least=100)
    made, slots = empty.with_keys(KEYS)
    for i, row in enumerate(values):
        made = made.begun(DAY + i // per_day).add(slots, row)
        if split and i % split == 0 and i % 97 == 0:
            made = null_from(made.frames(), empty)
    return made.begun(DAY + days), values


def test_quantiles_are_those_of_the_values() -> None:
    made, values = fed(5)
    for q in (0.001, 0.5, 0.99):
        assert made.quantile(q) == pytest.approx(np.quantile(values, q, axis=0), abs=0.011)


def test_the_day_being_counted_does_not_count() -> None:
    made, _ = fed(5)
    _, slots = made.with_keys(KEYS)
    before = made.quantile(0.99)
    for _ in range(500):
        made = made.add(slots, np.array([1.9, 1.9, 1.9]))
    assert np.array_equal(made.quantile(0.99), before)
    assert (made.begun(made.day + 1).quantile(0.99) > before).all()


def test_fewer_days_than_asked_are_unknown_and_the_pool_adds_up() -> None:
    made, values = fed(3)
    assert np.isnan(made.quantile(0.99)).all()
    pooled = made.pooled_quantile(0.99, np.array([0, 0, -1]))
    assert pooled[:2] == pytest.approx(np.quantile(values[:, :2], 0.99), abs=0.011)
    assert np.isnan(pooled[2])  # of no pool
    for least, known in ((6, True), (7, False)):  # two keys of three days each
        asked = made.pooled_quantile(0.99, np.array([0, 0, -1]), least_days=least)
        assert np.isfinite(asked[0]) == known


def test_a_day_with_few_values_is_forgotten() -> None:
    made, slots = null(EDGES, ["instance", "statistic"], days=7, least=100).with_keys(KEYS)
    made = made.begun(DAY)
    for i in range(150):
        made = made.add(slots, np.array([0.1, np.nan if i > 50 else 0.1, np.nan]))
    assert list(made.begun(DAY + 1).known_days()) == [1, 0, 0]


def test_only_the_latest_days_are_kept_over_gaps() -> None:
    made, slots = null(EDGES, ["instance", "statistic"], days=3, least=1).with_keys(KEYS)
    for day in (0, 1, 5, 20):
        made = made.begun(DAY + day).add(slots, np.array([0.1, 0.2, np.nan]))
    made = made.begun(DAY + 30)
    assert made.slots["dates"][0].tolist() == [DAY + 20, DAY + 5, DAY + 1]
    assert made.slots["dates"][2].tolist() == [-1, -1, -1]


def test_frames_make_the_same_again_and_without_forgets() -> None:
    whole, _ = fed(6, split=0)
    through, _ = fed(6, split=1)
    for a, b in zip(
        whole.slots.values.values(),
        through.slots.values.values(),
        strict=True,
    ):
        assert np.array_equal(a, b)
    less = whole.without(pl.DataFrame({"instance": ["b"]}))
    assert less.slots.keys["instance"].to_list() == ["a", "c"]
    assert np.array_equal(less.quantile(0.9), whole.quantile(0.9)[[0, 2]])


def test_beyond_the_last_edge_is_never_less_than_it() -> None:
    counts = np.array([[0.0, 0.0, 10.0], [0.0, 0.0, 0.0]])
    found = quantiles(counts, np.array([0.0, 1.0, 2.0, 3.0]), 0.5)
    assert found[0] == 3.0
    assert np.isnan(found[1])
