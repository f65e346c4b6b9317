"""Arrival processes: their rate and CV, from the first second on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from driftwatch.simulate.workload.arrivals import gamma, poisson, weibull, weibull_shape

Renewal = Callable[[float, float, float, np.random.Generator], np.ndarray]


@pytest.mark.parametrize("process", [gamma, weibull])
@pytest.mark.parametrize("cv", [0.3, 1.0, 2.5])
def test_gaps_have_the_rate_and_the_cv(process: Renewal, cv: float) -> None:
    times = process(4.0, cv, 100_000.0, np.random.default_rng(3))
    gaps = np.diff(times)
    assert (gaps >= 0).all()
    assert times[0] >= 0
    assert times[-1] < 100_000
    # 400,000 gaps: the mean's standard error is cv / 632 of it
    assert gaps.mean() == pytest.approx(0.25, rel=0.01 * max(cv, 1))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03)


@pytest.mark.parametrize("process", [gamma, weibull])
def test_a_short_span_has_its_rate_too(process: Renewal) -> None:
    """A process that begins with a full gap at time 0 would have (cv² - 1)/2 = 4 fewer here."""
    rng = np.random.default_rng(11)
    counts = [len(process(1.0, 3.0, 20.0, rng)) for _ in range(4000)]
    error = np.std(counts) / np.sqrt(len(counts))
    assert np.mean(counts) == pytest.approx(20.0, abs=4 * error)
    assert error < 0.35


def test_cv_1_is_poisson() -> None:
    rng = np.random.default_rng(7)
    gaps = np.diff(poisson(50.0, 400.0, rng))
    for times in (gamma(50.0, 1.0, 400.0, rng), weibull(50.0, 1.0, 400.0, rng)):
        assert stats.ks_2samp(gaps, np.diff(times)).pvalue > 0.001
    assert stats.kstest(gaps, stats.expon(scale=1 / 50).cdf).pvalue > 0.001


def test_weibull_shape_inverts_the_cv() -> None:
    assert weibull_shape(1.0) == 1.0
    for cv in (0.01, 0.2, 3.0, 20.0, 100.0):
        shape = weibull_shape(cv)
        assert np.sqrt(_weibull_cv_squared(shape)) == pytest.approx(cv, rel=1e-5)


def _weibull_cv_squared(shape: float) -> float:
    mean, variance = stats.weibull_min.stats(shape)
    return float(variance / mean**2)


def test_the_same_seed_gives_the_same_times() -> None:
    for process in (gamma, weibull):
        one, other = (process(3.0, 1.7, 50.0, np.random.default_rng(2)) for _ in range(2))
        assert one.tobytes() == other.tobytes()
        assert len(one)


def test_no_rate_is_no_arrival() -> None:
    rng = np.random.default_rng(0)
    assert [len(found) for found in (poisson(0, 9, rng), gamma(0, 2, 9, rng))] == [0, 0]
    assert len(weibull(0, 2, 9, rng)) == 0
    assert len(poisson(5, 0, rng)) == 0


@pytest.mark.parametrize(
    ("rate", "cv", "duration", "word"),
    [
        (-1.0, 1.0, 9.0, "rate_per_second"),
        (float("nan"), 1.0, 9.0, "rate_per_second"),
        (1.0, 0.0, 9.0, "cv"),
        (1.0, 1.0, float("inf"), "duration_seconds"),
        (1e6, 1.0, 1e6, "arrivals"),
        (1.0, 1000.0, 9.0, "CV"),
    ],
)
def test_what_cannot_be_asked(rate: float, cv: float, duration: float, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        weibull(rate, cv, duration, np.random.default_rng(0))
