"""Windows over many targets at once give what one window by itself gives."""

from __future__ import annotations

import numpy as np
import pytest

from driftwatch.detect.speed.change import (
    Holding,
    Limits,
    Past,
    past_of,
)


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    rng = np.random.default_rng(6)
    found = rng.normal(size=(7, 90))
    found[rng.random(found.shape) < 0.3] = np.nan
    found[3, 20:40] = np.nan
    return found


def ln_speeds(loss: float, count: int = 240, start: int = 120, stop: int = 180) -> np.ndarray:
    """A wandering engine with a loss between two minutes; ten engines."""
    rng = np.random.default_rng(3)
    keep = np.exp(-1 / 90)
    found = np.empty((10, count))
    now = rng.normal(0, 0.035, 10)
    for minute in range(count):
        now = keep * now + rng.normal(0, 0.035 * np.sqrt(1 - keep**2), 10)
        found[:, minute] = now + rng.normal(0, 0.012, 10)
    found[:, start:stop] += np.log1p(-loss)
    return found


def windows_of(
    speeds: np.ndarray,
    outside: np.ndarray | None = None,
    bunched: np.ndarray | None = None,
    start: int = 0,
) -> Past:
    """The windows, of a law that is right but for what is given."""
    right = np.zeros_like(speeds)
    return past_of(
        speeds,
        right if outside is None else outside,
        right if bunched is None else bunched,
        start,
    )


def told_of(
    speeds: np.ndarray,
    normal: float = 0.0,
    others: np.ndarray | None = None,
    usual: float = 0.0,
    level: float = -0.9,
    bunched: np.ndarray | None = None,
    smallest: float = 0.1,
    change: float = 0.915,
) -> np.ndarray:
    """Who is slower, minute by minute; by default nothing is ever low enough by its level."""
    past = windows_of(speeds, bunched=bunched)
    one = np.ones(10)
    limits = Limits(
        level=level * one,
        usual=usual * one,
        normal=normal * one,
        change=np.log(change) * one,
        long_change=np.log(min(change, 0.89)) * one,
        smallest=smallest * one,
        source=np.full(10, "own", dtype=object),
    )
    held = Holding.nobody(10)
    slower = np.zeros(speeds.shape, dtype=bool)
    for minute in range(speeds.shape[1]):
        held.step(past, minute, limits, others=None if others is None else others[:, minute])
        slower[:, minute] = held.slower
    return slower


@pytest.mark.parametrize(("loss", "is_told"), [(0.0, False), (0.05, False), (0.15, True)])
def test_a_sudden_loss_is_told_until_it_is_over(loss: float, *, is_told: bool) -> None:
    speeds = ln_speeds(loss)
    slower = told_of(speeds)
    if not is_told:
        assert not slower.any()
        return
    assert not slower[:, :125].any()
    assert slower[:, 130:180].all()
    assert not slower[:, 196:].any()


@pytest.mark.parametrize("minutes_back", [1, 30])
def test_who_is_always_slower_than_the_reference_recovers_to_that(minutes_back: int) -> None:
    """Its own days lie at 0.86: an older GPU among its twins, or a pin of before an upgrade."""
    speeds = ln_speeds(0.0, count=600) + np.log(0.86)
    speeds[:, 120:180] += np.log(0.80)
    speeds[:, 180 : 180 + minutes_back] += np.linspace(np.log(0.80), 0.0, minutes_back)
    slower = told_of(speeds, usual=float(np.log(0.86)))
    assert slower[:, 130:180].all()
    assert not slower[:, 300:].any()


def test_the_end_of_a_burst_is_no_loss() -> None:
    """It read 1.2 while many requests ran, and reads as ever after it: nothing is low."""
    speeds = 0.5 * ln_speeds(0.0)
    speeds[:, 60:120] += 0.2
    assert not told_of(speeds).any()
    speeds[:, 120:180] += np.log1p(-0.2)
    slower = told_of(speeds)
    assert slower[:, 130:180].all(), "a loss that begins as the burst ends is one"


def test_low_is_against_the_baseline_the_peers_or_the_own_median() -> None:
    """This server reads 1.15 all week; 15 % less is 0.98, and a loss all the same."""
    speeds = 0.5 * ln_speeds(0.0) + 0.14
    speeds[:, 120:180] += np.log(0.85)
    assert not told_of(speeds).any(), "nobody knows that it is low"
    assert told_of(speeds, normal=0.14)[:, 130:180].all()
    peers = np.zeros_like(speeds)
    peers[:, 120:180] = np.log(0.85)
    assert told_of(speeds, others=peers)[:, 130:180].all()


def test_requests_that_come_together_are_no_loss_and_their_end_excuses_none() -> None:
    """Ten minutes of clients that send at once after a steady hour, each waiting for the others."""
    speeds = 0.5 * ln_speeds(0.20)
    speeds[:, 120:180] += 0.5 * np.log1p(-0.20)
    assert told_of(speeds)[:, 130:180].all()
    together = np.zeros_like(speeds)
    together[:, 120:180] = 0.22
    assert not told_of(speeds, bunched=together).any()
    # the other way round the law was too low before, if anything: what is low now is a loss
    before = np.where(together > 0.0, 0.0, 0.22)
    assert told_of(speeds, bunched=before)[:, 130:180].all()
    always = np.full_like(speeds, 0.22)
    assert told_of(speeds, bunched=always)[:, 130:180].all()
