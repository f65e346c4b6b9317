"""Scrapes that come late, are lost or lie apart, and what a scrape config drops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import gaps, gpu_times, scrape_times


def scenario(hours: float = 1.0, **scrape: Any) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "x",
            "title": "x",
            "duration": f"{round(hours * 3600)}s",
            "pool": {"replicas": 2},
            "traffic": {"requests_per_second": 1.0},
            "scrape": scrape,
            "truth": {},
        }
    )


def test_a_third_of_the_scrapes_is_lost_and_nothing_is_kept_of_them() -> None:
    plain, lossy = scenario(24), scenario(24, lost_ratio=0.3)
    whole, left = (len(scrape_times(made, 3, 0)[0]) for made in (plain, lossy))
    assert left / whole == pytest.approx(0.7, abs=0.02)
    missed = scrape_times(lossy, 3, 0)[1]
    assert missed.mean() < 0.01  # a lost scrape is no scrape that failed


def test_late_scrapes_stay_in_order() -> None:
    apart = np.diff(scrape_times(scenario(24, late_ratio=0.2), 3, 0)[0])
    assert 0 < apart.min() < 8 and apart.max() > 20  # of 15 s


def test_gaps_are_those_of_the_whole_pool_and_of_its_exporters() -> None:
    made = scenario(24, gaps_per_day=12)
    starts, ends = gaps(made, 3)
    assert len(starts) > 4 and (ends - starts >= 60).all() and (ends - starts <= 900).all()
    for times in (scrape_times(made, 3, 0)[0], scrape_times(made, 3, 1)[0], gpu_times(made, 3, 1)):
        for first, last in zip(starts, ends, strict=True):
            assert not ((times >= first) & (times < last)).any()
    assert len(gaps(scenario(24), 3)[0]) == 0
