"""Windows over many targets at once give what one window by itself gives."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import polars as pl
import pytest

from driftwatch.detect.speed.change import (
    Holding,
    Limits,
    Past,
    deepest_falls,
    faded_mean,
    last_quantiles,
    of_others,
    past_of,
)
from driftwatch.detect.speed.limits import (
    CHANGE,
    LEVEL,
    PEER_CHANGE,
    PEER_LEVEL,
    limits_of,
    no_past,
)
from driftwatch.detect.speed.load_model import LoadModel


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    rng = np.random.default_rng(6)
    found = rng.normal(size=(7, 90))
    found[rng.random(found.shape) < 0.3] = np.nan
    found[3, 20:40] = np.nan
    return found


def test_quantiles_are_those_of_each_window(values: np.ndarray) -> None:
    found = last_quantiles(values, 10, (0.0, 0.25, 0.9))
    for target, minute in np.ndindex(values.shape):
        window = values[target, max(0, minute - 9) : minute + 1]
        known = window[~np.isnan(window)]
        for share, told in zip((0.0, 0.25, 0.9), found, strict=True):
            if minute >= 9 and len(known) >= 6:
                assert told[target, minute] == pytest.approx(np.quantile(known, share), abs=1e-12)
            else:
                assert np.isnan(told[target, minute])


def test_a_faded_mean_leaves_out_what_is_young(values: np.ndarray) -> None:
    found = faded_mean(values, age=3, span=12, fading=4.0, least=5)
    for target, minute in np.ndindex(values.shape):
        ages = [a for a in range(3, 15) if minute - a >= 0]
        pairs = [(values[target, minute - a], np.exp(-(a - 3) / 4.0)) for a in ages]
        pairs = [(v, w) for v, w in pairs if not np.isnan(v)]
        if len(pairs) < 5:
            assert np.isnan(found[target, minute])
        else:
            mean = sum(v * w for v, w in pairs) / sum(w for _, w in pairs)
            assert found[target, minute] == pytest.approx(mean, abs=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
def test_the_others_median(values: np.ndarray, rows: int) -> None:
    some = values[:rows]
    found = of_others(some)
    for target, minute in np.ndindex(some.shape):
        others = np.delete(some[:, minute], target)
        others = others[~np.isnan(others)]
        if rows < 3 or len(others) < 2:
            assert np.isnan(found[target, minute])
        else:
            assert found[target, minute] == pytest.approx(np.median(others), abs=1e-12)


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


def test_the_end_of_a_second_loss_leaves_the_first() -> None:
    speeds = ln_speeds(0.20)
    speeds[:, 135:155] += np.log1p(-0.17)
    slower = told_of(speeds)
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


def test_what_a_queue_read_above_the_baseline_is_nothing_to_lose() -> None:
    """1.35 while a queue stood, 0.91 between two of them: the peers alone say that it was speed."""
    speeds = 0.3 * ln_speeds(0.0) - 0.09
    speeds[:, 60:120] += 0.39
    assert not told_of(speeds, change=0.80).any()
    speeds[:, 120:180] += np.log1p(-0.15)
    assert told_of(speeds, change=0.80)[:, 135:180].all()
    peers = np.zeros_like(speeds)
    peers[:, 120:180] = np.log(0.85)
    speeds[:, 120:180] -= np.log1p(-0.15)
    assert told_of(speeds, change=0.80, others=peers)[:, 130:180].all()


def test_low_is_half_of_the_smallest_loss_that_can_be_found() -> None:
    """From 1.02 to 0.88: 12 % are left, where minutes hide losses of 35 %."""
    speeds = 0.5 * ln_speeds(0.0) + np.log(1.02)
    speeds[:, 120:180] += np.log(0.88 / 1.02)
    assert told_of(speeds)[:, 130:180].all()
    assert not told_of(speeds, smallest=0.35).any()
    speeds[:, 120:180] += np.log(0.80)
    assert told_of(speeds, smallest=0.35)[:, 130:180].all()


def test_low_is_against_the_baseline_the_peers_or_the_own_median() -> None:
    """This server reads 1.15 all week; 15 % less is 0.98, and a loss all the same."""
    speeds = 0.5 * ln_speeds(0.0) + 0.14
    speeds[:, 120:180] += np.log(0.85)
    assert not told_of(speeds).any(), "nobody knows that it is low"
    assert told_of(speeds, normal=0.14)[:, 130:180].all()
    peers = np.zeros_like(speeds)
    peers[:, 120:180] = np.log(0.85)
    assert told_of(speeds, others=peers)[:, 130:180].all()


def test_where_minutes_scatter_a_longer_window_finds_the_loss() -> None:
    """Nearly all of eight minutes hide a third of the loss; the median of twenty does not."""
    rng = np.random.default_rng(8)
    speeds = ln_speeds(0.15) + rng.normal(0, 0.06, (10, 240))
    slower = told_of(speeds)
    assert not slower[:, :120].any()
    assert slower[:, 140].mean() >= 0.9
    quick = windows_of(speeds).change[:, 120:150] <= np.log(0.915)
    assert quick.any(axis=1).mean() <= 0.5, "the short window alone misses it"


def test_statistics_from_a_minute_on_are_those_of_all_minutes() -> None:
    speeds = ln_speeds(0.1)
    outside = np.where(speeds > 0.02, speeds, 0.0)
    bunched = np.where(speeds > 0.03, 0.1, 0.0)
    whole, part = (windows_of(speeds, outside, bunched, start) for start in (0, 100))
    for field in fields(whole):
        np.testing.assert_allclose(
            getattr(part, field.name), getattr(whole, field.name)[:, 100:], atol=1e-12
        )


def test_a_change_of_load_beyond_the_range_is_no_loss() -> None:
    """The law may be wrong by as much as the two loads are apart, and no more is claimed."""
    speeds = ln_speeds(0.10)
    outside = np.zeros_like(speeds)
    outside[:, 120:180] = 0.09
    plain, allowed = windows_of(speeds), windows_of(speeds, outside)
    during = slice(127, 130)
    assert np.nanmax(plain.change[:, during]) < np.nanmin(allowed.change[:, during])
    np.testing.assert_allclose(allowed.change[:, 127], plain.change[:, 127] + 0.09, atol=1e-12)
    np.testing.assert_allclose(allowed.bound[:, 150], plain.level[:, 150] + 0.09, atol=1e-12)
    steady = windows_of(speeds, np.full_like(speeds, -0.2))
    np.testing.assert_allclose(steady.change[:, 70:], plain.change[:, 70:], atol=1e-12)


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


def test_who_was_found_with_few_minutes_known_is_not_back_at_once() -> None:
    """Most of the last 15 min that are known lie before the loss."""
    speeds = 0.3 * ln_speeds(0.0)
    speeds[:, 120:180] += np.log(0.75)
    speeds[:, [120, 122, 124]] = np.nan
    slower = told_of(speeds)
    for engine in slower:
        first = int(np.flatnonzero(engine)[0])
        assert 120 < first < 128
        assert engine[first:180].all()


def test_who_became_slow_slowly_is_back_where_it_usually_is() -> None:
    """Nothing fell suddenly: the minutes before it was found are slow as well."""
    speeds = 0.1 * ln_speeds(0.0, count=400)
    speeds[:, 60:240] += np.linspace(0.0, -0.30, 180)
    speeds[:, 240:] += np.linspace(-0.30, -0.06, 160)
    slower = told_of(speeds, level=-0.20)
    assert slower[:, 200:240].all()
    # 60 % of what it lost beside its usual speed is regained at -0.08
    assert not slower[:, 398].any()


def test_a_baselines_own_windows_say_how_far_a_change_must_fall() -> None:
    """Its clients send together at times: 12 % for half an hour, again and again, all low."""
    speeds = 0.2 * ln_speeds(0.0, count=900)
    still = np.zeros_like(speeds)
    calm = deepest_falls(speeds, still, still)
    for start in range(100, 900, 200):
        speeds[:, start : start + 30] += np.log(0.88)
    wild = deepest_falls(speeds, still, still)
    assert max(calm) < 0.06
    assert wild == pytest.approx((0.12, 0.13), abs=0.03)
    # from a higher level to the usual one is no fall
    assert max(deepest_falls(np.where(speeds < -0.08, 0.0, 0.13), still, still)) == 0.0
    models = [
        LoadModel((7e-3, 0.0, 0.0, 3e-5), (3.0, 40.0), 6000, 1400, misfit_ratio=noise, falls=falls)
        for noise, falls in (
            (0.09, calm),
            (0.02, wild),
            (0.02, (0.5, 0.5)),
            (0.09, (np.inf, np.inf)),
        )
    ]
    keys = pl.DataFrame({"instance": list("abcd"), "engine": ["0"] * 4})
    limits = limits_of(no_past(), keys, ["p"] * 4, models, (LEVEL, CHANGE))
    found = -limits.change, -limits.long_change
    assert found[0] == pytest.approx([0.105, 1.5 * wild[0], 0.223, 0.153], abs=0.001)
    assert found[1] == pytest.approx([0.117, 1.5 * wild[1], 0.223, 0.195], abs=0.001)
    peers = limits_of(no_past(), keys, ["p"] * 4, models, (PEER_LEVEL, PEER_CHANGE))
    assert peers.change[1] == peers.change[2] > limits.change[1], "no baseline saw the peers"


def test_two_days_of_its_own_do_not_forget_what_the_baseline_did() -> None:
    model = LoadModel((7e-3, 0.0, 0.0, 3e-5), (3.0, 40.0), 6000, 1400, falls=(0.12, 0.0))
    keys = pl.DataFrame({"instance": ["a"], "engine": ["0"]})
    past, slots = no_past().with_keys(keys.with_columns(statistic=pl.lit(CHANGE)))
    for day in (20_000, 20_001):
        past = past.begun(day).add(np.repeat(slots, 600), np.full(600, 0.01))
    limits = limits_of(past.begun(20_002), keys, ["p"], [model], (LEVEL, CHANGE))
    assert limits.change == pytest.approx([-0.18])


def test_the_long_window_asks_more_where_the_law_scatters() -> None:
    """Five deviations of the wander and of the noise of the minutes, and never less than 11 %."""
    calm = LoadModel((7e-3, 0.0, 0.0, 3e-5), (3.0, 40.0), 600, 300, misfit_ratio=0.02)
    noisy = replace(calm, misfit_ratio=0.15)
    keys = pl.DataFrame({"instance": ["a", "b"], "engine": ["0", "0"]})
    limits = limits_of(no_past(), keys, ["p", "p"], [calm, noisy], (LEVEL, CHANGE))
    assert np.exp(limits.long_change) == pytest.approx([0.89, 0.73], abs=0.01)


def test_a_noisy_servers_own_median_is_not_its_highest_minutes() -> None:
    """The level is a 90 % quantile: 0.128 above the median at a noise of 0.1."""
    model = LoadModel((7e-3, 0.0, 0.0, 3e-5), (3.0, 40.0), 6000, 3000, misfit_ratio=0.1)
    keys = pl.DataFrame({"instance": ["a", "b"], "engine": ["0", "0"]})
    past, slots = no_past().with_keys(keys.with_columns(statistic=pl.lit(LEVEL)))
    for day in range(20_000, 20_007):
        past = past.begun(day)
        values = np.repeat([0.128, 0.30], 600)
        past = past.add(np.repeat(slots, 600), values)
    limits = limits_of(past.begun(20_007), keys, ["p", "p"], [model, model], (LEVEL, CHANGE))
    assert limits.normal == pytest.approx([0.0, 0.17], abs=0.02)
