"""What is left of a day's end-to-end time at equal lengths and equal load."""

from __future__ import annotations

import numpy as np
import pytest

from driftwatch.detect.trend.equal_lengths import adjusted, daily, hourly, ln_quantile
from driftwatch.detect.trend.memory import COVARIATES, DAYS

TRUE = np.array([0.3, 0.0, 0.5, 0.4, 0.25])  # how y moves with each covariate
EDGES = np.array([0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, np.inf])


def days(
    targets: int, drift: float, demand: float, seed: int = 0, hours: int = 24, wander: float = 0.035
) -> tuple[np.ndarray, np.ndarray]:
    """Day statistics where y drifts by ``drift`` a day and the covariates by ``demand``."""
    rng = np.random.default_rng(seed)
    kept, within = [], 0.0
    for day in range(DAYS):
        sums = 0.0
        for hour in range(hours):
            swing = 0.4 * np.sin(2 * np.pi * hour / 24) + demand * day
            x = 4.0 + swing + rng.normal(0, 0.1, (targets, COVARIATES))
            y = x @ TRUE + drift * day + rng.normal(0, wander, targets)
            sums = sums + hourly(y, x)
        one, products = daily(sums)
        kept.append(one)
        within = within * 0.95 + products
    return np.stack(kept, axis=1), within


def test_a_drift_is_found_and_a_demand_that_rises_is_none() -> None:
    raw, within = days(50, drift=0.004, demand=0.01)
    found = adjusted(raw, within)
    slope = np.polyfit(np.arange(DAYS), found.values.T, 1)[0]
    assert slope == pytest.approx(np.full(50, 0.004), abs=1e-3)
    # as it is, y rises by four times as much
    assert np.polyfit(np.arange(DAYS), raw[..., 1].T, 1)[0].min() > 0.015
    assert np.polyfit(np.arange(DAYS), found.adjustment.T, 1)[0] == pytest.approx(
        np.full(50, 0.01 * TRUE.sum()), rel=0.1
    )
    quiet = adjusted(*days(50, drift=0.0, demand=0.01, seed=1))
    assert np.abs(np.polyfit(np.arange(DAYS), quiet.values.T, 1)[0]).max() < 1e-3


def test_days_beyond_what_their_hours_can_tell_are_unknown() -> None:
    kept, within = days(4, drift=0.0, demand=0.0)
    kept[:, -1, 2:] += 3.0  # lengths e³ times those of any other day
    found = adjusted(kept, within)
    assert np.isnan(found.values[:, -1]).all()
    assert np.isfinite(found.values[:, :-1]).all()


def test_an_hour_with_anything_unknown_counts_nowhere() -> None:
    x = np.full((3, COVARIATES), 2.0)
    x[1, 3] = np.nan
    found = hourly(np.array([1.0, 1.0, np.nan]), x)
    assert found[:, 0].tolist() == [1.0, 0.0, 0.0]
    assert not found[1:].any()


@pytest.mark.parametrize("q", [0.5, 0.99])
def test_quantiles_of_what_is_log_normal_are_exact_to_sampling(q: float) -> None:
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(0.5, 0.6, (40, 50_000)))
    cells = np.stack([(values <= edge).sum(axis=1) for edge in EDGES], axis=1).astype(float)
    found = ln_quantile(cells, EDGES, q)
    assert found == pytest.approx(np.log(np.quantile(values, q, axis=1)), abs=0.05)
    # and rises as smoothly as the values do, over the edges of cells
    moved = []
    for shift in np.linspace(0, 1, 21):
        shares = np.array([(values[0] * np.exp(shift) <= edge).sum() for edge in EDGES])
        moved.append(ln_quantile(shares[None, :].astype(float), EDGES, q)[0] - shift)
    assert np.ptp(moved) < 0.08
