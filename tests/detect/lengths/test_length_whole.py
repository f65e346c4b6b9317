"""All of a distribution moved, or one part of it; five minutes of the former; whose days count."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from driftwatch.detect.lengths.episodes import CALM, OFF, Reading, reading, step, watch
from driftwatch.detect.lengths.layouts import Latest
from driftwatch.detect.lengths.peers import PART, QUICK, WHOLE, Peers, weights, whole_moved
from driftwatch.detect.lengths.scales import PEER_SCALE, PEER_THRESHOLD, UNCALIBRATED, peer_scales
from driftwatch.detect.null import Null, null

EDGES = np.array([10, 20, 50, 100, 200, 500, 1000, 2000, 5000, np.inf])
USUAL = np.exp(np.random.default_rng(3).normal(5.5, 0.8, 600))


def cumulative(lengths: np.ndarray) -> np.ndarray:
    found: np.ndarray = (lengths[:, None] <= EDGES).sum(axis=0).astype(float)
    return found


def test_a_scaled_distribution_moved_as_a_whole_and_a_burst_did_not() -> None:
    burst = np.concatenate([USUAL, np.full(70, 8000.0)])
    rows = [USUAL * 1.3, USUAL / 1.3, USUAL * 1.05, burst]
    assert burst.mean() > 1.5 * USUAL.mean()
    counts = np.stack([cumulative(row) for row in rows])
    twins = np.repeat(cumulative(USUAL)[None], len(rows), axis=0)
    assert whole_moved(counts, twins, EDGES, WHOLE).tolist() == [True, True, False, False]


def test_edges_that_one_side_does_not_have_are_left_out() -> None:
    counts, twins = cumulative(USUAL * 1.5)[None], cumulative(USUAL)[None].copy()
    twins[0, 4] = np.nan
    assert whole_moved(counts, twins, EDGES, WHOLE).all()
    twins[0, :-1] = np.nan
    assert not whole_moved(counts, twins, EDGES, WHOLE).any()
    assert not whole_moved(np.zeros_like(counts), cumulative(USUAL)[None], EDGES, WHOLE).any()


def told_of(factors: list[float], requests: int = 600, asked: bool = True) -> list[float]:
    """Scores of one minute's targets of one pool, each with its own lengths, in both signals."""
    lengths = [USUAL[:requests] * factor for factor in factors]
    counts = np.stack([cumulative(row) for row in lengths])[None, :, None, :].repeat(2, axis=2)
    sums = np.array([row.sum() for row in lengths])[None, :, None].repeat(2, axis=2)
    pool = counts.sum(axis=1, keepdims=True), sums.sum(axis=1, keepdims=True)
    of_pool = np.zeros(len(factors), dtype=np.int64)
    scale = np.full((len(factors), 2), 4.0)
    may = np.full(sums.shape, asked)
    targets = Latest({QUICK: counts}, {QUICK: sums})
    pools = Latest({QUICK: pool[0]}, {QUICK: pool[1]})
    found = Peers(of_pool, may, scale, EDGES).five_minute_scores(targets, pools)[0]
    return [float(score) for score in found]


def test_five_minutes_tell_of_a_server_whose_lengths_doubled_and_of_no_other() -> None:
    scores = told_of([1.0, 2.0, 1.0])
    assert scores[1] > PEER_THRESHOLD
    assert scores[0] == scores[2] == 0.0
    assert told_of([1.0, 0.5, 1.0, 1.0])[1] > PEER_THRESHOLD


@pytest.mark.parametrize(
    ("factors", "requests", "asked"),
    [([1.0, 1.2, 1.0], 600, True), ([1, 2, 1], 90, True), ([1, 2, 1], 600, False)],
)
def test_too_little_too_few_or_nobody_to_compare_with(
    factors: list[float], requests: int, asked: bool
) -> None:
    assert told_of(factors, requests, asked) == [0.0, 0.0, 0.0]


def test_a_part_of_a_distribution_needs_more_than_all_of_it() -> None:
    scores, yes = np.array([[1.6, np.nan], [1.6, np.nan]]), np.ones((2, 2), dtype=bool)
    whole = np.array([[True, False], [False, False]])
    now = reading(scores, yes, yes, np.ones(2, dtype=bool), weights(whole))
    assert now.score.tolist() == [1.6, 1.6]  # what is told and what ends it is the score itself
    assert now.counted.tolist() == pytest.approx([1.6, 1.6 * PART])
    assert now.at_once.tolist() == pytest.approx([1.6, 1.6 * PART])


def test_what_five_minutes_began_ten_minutes_do_not_end_at_once() -> None:
    state = watch(1)
    quiet, nothing = np.array([0.6]), np.zeros(1)
    for minute in range(2 * CALM):
        state, _ = step(state, minute, Reading(quiet, nothing, nothing), 1.7)
    sudden = Reading(np.array([1.1]), nothing, np.array([1.9]))
    state, _ = step(state, 100, sudden, 1.7)
    for minute in range(101, 100 + CALM):
        assert state.on().all()
        state, _ = step(state, minute, Reading(quiet, nothing, nothing), 1.7)
    state, _ = step(state, 100 + CALM, Reading(quiet, nothing, nothing), 1.7)
    assert state.since.tolist() == [OFF]


def past(servers: int, days: int, value: float) -> Null:
    units = pl.DataFrame({"target": [f"s{i}" for i in range(servers)]})
    keys = units.join(pl.DataFrame({"signal": ["p", "g"]}), how="cross")
    made, slots = null(np.geomspace(0.1, 60.0, 81), ("target", "signal"), 7, 10).with_keys(keys)
    for day in range(days):
        made = made.begun(day)
        for _ in range(10):
            made = made.add(slots, np.full(len(slots), value))
    return made.begun(days)


def test_ten_servers_on_one_day_have_seen_one_day_of_traffic() -> None:
    pool = np.zeros(10, dtype=np.int64)
    scale, source = peer_scales(past(10, 1, 1.0), pool)
    assert set(source.ravel()) == {2}
    one_fifth = UNCALIBRATED * PEER_SCALE**0.8
    assert np.allclose(scale, one_fifth, rtol=0.1)
    assert set(peer_scales(past(10, 5, 1.0), pool)[1].ravel()) == {0}
    # a newcomer has the pool's five days
    grown, _ = past(2, 5, 1.0).with_keys(
        pl.DataFrame({"target": ["new", "new"], "signal": ["p", "g"]})
    )
    scale, source = peer_scales(grown, np.zeros(3, dtype=np.int64))
    assert source[2].tolist() == [1, 1]
    assert np.allclose(scale[2], 1.0, rtol=0.2)
