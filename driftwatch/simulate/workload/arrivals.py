"""Arrival processes: Poisson, and renewal processes with Gamma or Weibull gaps of a given CV.

Production arrivals are burstier than Poisson and fit Gamma or Weibull gaps (Xiang et al.,
"ServeGen", arXiv 2505.09999). A renewal process is started in its steady state, its first gap
drawn from the residual of a length-biased gap (Cox, "Renewal Theory", 1962, ch. 5): so the
expected number of arrivals is rate × duration for any CV; starting with a full gap would lose
about (cv² - 1)/2 of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from driftwatch.simulate.requests import Floats

_MOST = 100_000_000  # more arrivals than memory should hold


def poisson(rate_per_second: float, duration_seconds: float, rng: np.random.Generator) -> Floats:
    """Sorted arrival times in [0, duration), CV 1.

    Raises:
        ValueError: a negative or endless rate or duration, or above 10^8 arrivals.
    """
    _check(rate_per_second, duration_seconds, 1.0)
    count = rng.poisson(rate_per_second * duration_seconds)
    times = rng.random(count) * duration_seconds
    times.sort()
    return times


def gamma(
    rate_per_second: float, cv: float, duration_seconds: float, rng: np.random.Generator
) -> Floats:
    """Sorted arrival times in [0, duration) with Gamma gaps: shape 1/cv², mean 1/rate.

    Args:
        rate_per_second: arrivals a second in the mean.
        cv: sd over mean of the gaps, above 0.
        duration_seconds: how long.
        rng: the randomness.

    Raises:
        ValueError: as ``poisson``, or a CV of 0 or below.
    """
    _check(rate_per_second, duration_seconds, cv)
    if not rate_per_second:
        return np.zeros(0)
    shape, scale = 1.0 / cv**2, cv**2 / rate_per_second
    return _renewal(
        rate_per_second,
        duration_seconds,
        rng.random() * rng.standard_gamma(shape + 1.0) * scale,
        lambda count: rng.standard_gamma(shape, count) * scale,
    )


def weibull(
    rate_per_second: float, cv: float, duration_seconds: float, rng: np.random.Generator
) -> Floats:
    """Sorted arrival times in [0, duration) with Weibull gaps of a CV, mean 1/rate.

    Args:
        rate_per_second: arrivals a second in the mean.
        cv: sd over mean of the gaps, 0.01 to 100.
        duration_seconds: how long.
        rng: the randomness.

    Raises:
        ValueError: as ``poisson``, or a CV outside 0.01…100.
    """
    _check(rate_per_second, duration_seconds, cv)
    shape = weibull_shape(cv)
    if not rate_per_second:
        return np.zeros(0)
    scale = 1.0 / (rate_per_second * math.gamma(1.0 + 1.0 / shape))
    # (gap / scale)^shape of a length-biased gap is Gamma(1 + 1/shape)
    biased = scale * rng.standard_gamma(1.0 + 1.0 / shape) ** (1.0 / shape)
    return _renewal(
        rate_per_second,
        duration_seconds,
        rng.random() * biased,
        lambda count: rng.weibull(shape, count) * scale,
    )


def weibull_shape(cv: float) -> float:
    """Shape k of the Weibull distribution with that CV: cv² = Γ(1 + 2/k) / Γ(1 + 1/k)² - 1.

    Raises:
        ValueError: the CV is outside 0.01…100.

    >>> weibull_shape(1.0)
    1.0
    """
    if not 0.01 <= cv <= 100.0:
        raise ValueError(f"a Weibull CV must be 0.01 to 100, not {cv:g}")
    from scipy.optimize import brentq

    def log_excess(log_shape: float) -> float:
        k = math.exp(log_shape)
        log_ratio = math.lgamma(1.0 + 2.0 / k) - 2.0 * math.lgamma(1.0 + 1.0 / k)
        return log_ratio - math.log1p(cv**2)

    return round(math.exp(brentq(log_excess, math.log(0.05), math.log(200.0), xtol=1e-13)), 12)


def _renewal(rate: float, duration: float, first: float, gaps: Callable[[int], Floats]) -> Floats:
    """Arrivals at ``first`` and after each further gap, until the duration is over."""
    parts, last = [np.array([first])], first
    while last < duration:
        expected = (duration - last) * rate
        steps = gaps(int(expected + 3.0 * math.sqrt(expected) + 16.0))
        times = last + np.cumsum(steps)
        parts.append(times)
        last = float(times[-1])
    found = np.concatenate(parts)
    return found[found < duration]


def _check(rate: float, duration: float, cv: float) -> None:
    for name, value in (("rate_per_second", rate), ("duration_seconds", duration)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be finite and not negative, not {value}")
    if not (math.isfinite(cv) and cv > 0):
        raise ValueError(f"cv must be above 0, not {cv}")
    if rate * duration > _MOST:
        raise ValueError(f"{rate * duration:.3g} arrivals: more than {_MOST:,}")
