from __future__ import annotations

import numpy as np
import pytest
from truth_judge.bootstrap import ratio, statistic


def test_a_rate_is_covered_as_often_as_promised() -> None:
    draw = np.random.default_rng(5)
    covered = 0
    for trial in range(200):
        counts = dict(enumerate(draw.poisson(2.0, size=60).astype(float)))
        made = ratio(counts, dict.fromkeys(counts, 0.5), seed=trial)
        assert made.low is not None and made.high is not None
        covered += made.low <= 4.0 <= made.high
    assert 0.90 <= covered / 200 <= 0.99


def test_servers_of_one_day_do_not_count_as_independent() -> None:
    """Ten servers that page together are one page's worth of evidence, not ten."""
    days = range(40)
    together = {d: 10.0 if d % 4 == 0 else 0.0 for d in days}
    apart = {(d, s): 1.0 if (d + s) % 4 == 0 else 0.0 for d in days for s in range(10)}
    wide = ratio(together, dict.fromkeys(days, 10.0), seed=1)
    narrow = ratio(apart, dict.fromkeys(apart, 1.0), seed=1)
    assert wide.value == pytest.approx(narrow.value)
    assert wide.high is not None and wide.low is not None
    assert narrow.high is not None and narrow.low is not None
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_none_in_all_blocks_bounds_the_rate_from_above_only() -> None:
    none = ratio({}, dict.fromkeys(range(30), 2.0), seed=1)
    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx((1 - 0.05 ** (1 / 30)) / 2.0)
    assert "one-sided" in none.note


def test_all_found_bounds_the_share_from_below_only() -> None:
    every = dict.fromkeys(range(240), 1.0)
    share = ratio(every, every, seed=1, share=True)
    assert (share.value, share.high) == (1.0, 1.0)
    assert share.low == pytest.approx(0.05 ** (1 / 240))  # 98.8 %: 240 episodes carry 98 %


def test_the_same_seed_gives_the_same_interval_whatever_the_order() -> None:
    values = {day: [float(day % 7), float(day % 3)] for day in range(50)}
    backwards = dict(reversed(values.items()))
    first = statistic(values, lambda v: float(np.mean(v)), seed=3)
    assert first == statistic(backwards, lambda v: float(np.mean(v)), seed=3)
    assert first != statistic(values, lambda v: float(np.mean(v)), seed=4)
    assert first.low is not None and first.high is not None and first.value is not None
    assert first.low < first.value < first.high
