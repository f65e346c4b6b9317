"""Slower than like work in the baseline, and slower than the peers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from detector_cases import START, at, minutes_of, play, slow_spans

from driftwatch.baselines.windows import Acceptance, WindowMinutes, baselines_of
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.speed.like_work import Windows, thresholds
from driftwatch.detect.speed.model import StepTimeModel, fit
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.explain import Window

BASELINE = 1440  # minutes
SERVERS = ("a:8000", "b:8000", "c:8000")


def baselines(minutes: pl.DataFrame) -> Baselines:
    window = Window(START, at(BASELINE))
    measured = WindowMinutes(minutes.filter(pl.col("end") <= window.end))
    targets = [Target(TargetKey(name, "0"), {}, pool="chat") for name in SERVERS]
    return baselines_of(measured, window, targets, Acceptance("test", at(BASELINE), "good"))


@pytest.mark.parametrize("loss", [0.15, 0.2, 0.3])
def test_a_loss_is_found_and_told_as_it_is(loss: float) -> None:
    minutes = minutes_of(BASELINE + 240, slow={"b:8000": [(1501, 1600, 1 / (1 - loss))]})
    rows, _ = play(minutes, baselines=baselines(minutes))
    first, last = slow_spans(rows)["b:8000"]
    assert slow_spans(rows).keys() == {"b:8000"}
    assert first - 1500 <= 9
    assert 1600 <= last <= 1616
    told = rows.filter(pl.col("slower_at_equal_load"))["speed_at_equal_load_ratio"]
    assert np.median(told) == pytest.approx(1 - loss, abs=0.03)
    peers = rows.filter(pl.col("slower_than_pool"))
    assert peers["instance"].unique().to_list() == ["b:8000"]
    assert peers["speed_against_pool_ratio"].median() == pytest.approx(1 - loss, abs=0.03)


def test_a_loss_is_told_against_the_minutes_before_it() -> None:
    """An engine that is 6 % below its pool, within its wander, loses 20 %: not 25 %."""
    wander, loss = [(1445, 1680, 1 / 0.94)], [(1501, 1600, 1 / 0.8)]
    minutes = minutes_of(BASELINE + 240, slow={"b:8000": wander + loss})
    rows, _ = play(minutes, baselines=baselines(minutes))
    told = rows.filter(pl.col("slower_at_equal_load"))
    assert told["instance"].unique().to_list() == ["b:8000"]
    assert told["speed_at_equal_load_ratio"].median() == pytest.approx(0.8, abs=0.02)
    after = rows.filter(pl.col("instance") == "b:8000", pl.col("end") > at(1640))
    assert after["speed_at_equal_load_ratio"].median() == pytest.approx(0.94, abs=0.02)


def test_a_pool_that_always_preempts_is_judged() -> None:
    minutes = minutes_of(BASELINE + 240, slow={"b:8000": [(1501, 1600, 1.25)]})
    minutes = minutes.with_columns(preemptions_total=pl.lit(2.0))
    rows, _ = play(minutes, baselines=baselines(minutes))
    assert slow_spans(rows).keys() == {"b:8000"}


def test_nobody_is_slow_for_two_days() -> None:
    minutes = minutes_of(BASELINE + 2880, seed=7)
    rows, _ = play(minutes, baselines=baselines(minutes))
    assert not rows["slower_at_equal_load"].any()
    assert not rows["slower_than_pool"].any()
    after = rows.filter(pl.col("end") > at(BASELINE + 15))
    assert after["slower_at_equal_load"].null_count() < 0.2 * len(after)
    assert after["speed_threshold_ratio"].max() <= 0.88
    assert after["speed_smallest_detectable_loss_ratio"].drop_nulls().is_between(0.12, 0.3).all()


def test_a_whole_pool_that_is_slower_is_slower_than_its_baseline_alone() -> None:
    slow = {name: [(1501, 1600, 1.25)] for name in SERVERS}
    minutes = minutes_of(BASELINE + 240, slow=slow)
    rows, _ = play(minutes, baselines=baselines(minutes))
    assert slow_spans(rows).keys() == set(SERVERS)
    assert not slow_spans(rows, "slower_than_pool")


def test_peers_need_no_baseline() -> None:
    minutes = minutes_of(600, slow={"c:8000": [(400, 500, 1.4)]})
    rows, _ = play(minutes, accepts=False)
    assert slow_spans(rows, "slower_than_pool").keys() == {"c:8000"}
    assert rows["slower_at_equal_load"].null_count() == len(rows)
    reasons = rows.filter(pl.col("end") == at(600))["speed_unknown_reason"].unique().to_list()
    assert reasons == [
        "no baseline in use yet: driftwatch baseline list proposes one, or names what is missing"
    ]


def test_work_that_the_baseline_has_not_seen_is_named() -> None:
    slow = {"b:8000": [(1451, 1500, 1.25)]}  # back while the work is unlike: it is slow no longer
    minutes = minutes_of(BASELINE + 120, prompts=[(1480, 1560, 40.0)], slow=slow)
    rows, _ = play(minutes, baselines=baselines(minutes), cuts=[at(1530), at(1541)])
    there = rows.filter(pl.col("end").is_between(at(1512), at(1550)))
    lost = pl.col("instance") == "b:8000"
    assert not there.filter(lost)["slower_at_equal_load"].fill_null(value=True).any()
    there = there.filter(~lost)
    assert there["slower_at_equal_load"].null_count() == len(there)
    assert set(there["speed_unknown_code"]) == {"out_of_range"}
    assert set(there["speed_unknown_reason"]) == {
        "the baseline has no minutes with such a ratio of prompt to generated tokens"
    }


def test_like_work_of_one_hour_sets_a_lower_limit_than_that_of_many() -> None:
    """An engine wanders for hours: one hour is one draw, however many windows it has."""
    rng = np.random.default_rng(3)
    hours = np.arange(1000) // 50
    levels = (0.03 * rng.standard_normal(20)[hours] + 0.01 * rng.standard_normal(1000))[:, None]
    kinds = np.zeros((1000, 5))
    kinds[:50] += 5.0  # work of the first hour alone
    levels[:50] -= levels[:50].mean()
    windows = Windows(kinds, levels.repeat(2, 1), hours)
    limit = thresholds([(windows, 2880, np.arange(2))], np.array([kinds[0], kinds[-1]]))[0]
    # the mean of one hour is as uncertain as hours differ
    between_hours = np.std(levels.reshape(20, 50).mean(axis=1))
    assert limit[0] == pytest.approx(-5 * np.hypot(0.01, between_hours), rel=0.15)
    assert limit[0] < np.log(0.88)


def test_more_requests_a_step_than_the_baseline_had_need_a_larger_loss() -> None:
    rng = np.random.default_rng(4)
    levels, hours = 0.01 * rng.standard_normal((1000, 2)), np.arange(1000) // 50
    windows = Windows(rng.standard_normal((1000, 5)), levels, hours)
    like, busier, quieter = ([requests, 0.0, 0.0, 0.0, 0.0] for requests in (0.0, 9.0, -9.0))
    longer = [9.0, 9.0, 0.0, 0.0, 0.0]  # other requests, and more of them
    kinds = np.array([like, busier, quieter, longer])
    limit = np.exp(thresholds([(windows, 2880, np.arange(4))], kinds)[0])
    assert limit == pytest.approx([0.88, 0.85, np.nan, np.nan], abs=0.01, nan_ok=True)


def test_a_baseline_of_an_earlier_version_is_accepted_anew() -> None:
    """Its model has no windows of like work: no speed is judged, and the reason says what to do."""
    minutes = minutes_of(BASELINE + 20)
    old = baselines(minutes).every[0]
    assert old.load_model is not None
    model = old.load_model.model_copy(update={"hourly_windows": ""})
    old = old.model_copy(update={"load_model": model})
    rows, _ = play(minutes, baselines=Baselines((old,)))
    rows = rows.filter(pl.col("instance") == old.instance)
    assert rows["slower_at_equal_load"].null_count() == len(rows)
    reason = "the baseline in use has no load model: accept it anew"
    assert rows["speed_unknown_reason"][-1] == reason


def test_what_a_pool_still_lacks_is_said() -> None:
    rows, _ = play(minutes_of(30))
    reason = rows.filter(pl.col("end") == at(15))["speed_unknown_reason"][0]
    assert reason == "not judged yet: 10 of 20 minutes of data"
    assert rows.filter(pl.col("end") == at(30))["speed_unknown_reason"][0] is None


def test_idle_preempting_and_restarted_minutes_say_so() -> None:
    minutes = minutes_of(120, SERVERS[:1])
    number = (pl.col("end") - START).dt.total_minutes()
    tokens = pl.when(number > 110).then(10.0).otherwise("itl_seconds_count")
    preempted = pl.when(number.is_between(90, 100)).then(3.0).otherwise("preemptions_total")
    minutes = minutes.with_columns(
        itl_seconds_count=tokens, preemptions_total=preempted, restarted=number == 60
    )
    rows, _ = play(minutes)
    codes = dict(rows.select(number, "speed_unknown_code").iter_rows())
    assert codes[120] == "idle"
    assert codes[98] == "preempting"
    assert codes[63] == "warming_up"
    assert codes[80] is None


def test_the_model_is_that_of_the_engine() -> None:
    model = fit(minutes_of(BASELINE))
    assert isinstance(model, StepTimeModel)
    again = StepTimeModel.model_validate_json(model.model_dump_json())
    assert again == model
    assert model.misfit_ratio < 0.03
    assert len(model.hourly_windows) < 50_000
    assert model.coefficients[0] == pytest.approx(0.012, rel=0.2)


@pytest.mark.parametrize("all_prefill", [True, False])
def test_an_idle_engine_meets_all_of_the_prefill_or_its_share(all_prefill: bool) -> None:
    """Where passes take 30 to 100 % of the time, the fit finds how much prefill a token met."""
    rng = np.random.default_rng(2)
    longer = [(k, k + 19, float(rng.uniform(0.3, 3.0))) for k in range(1, BASELINE, 20)]
    minutes = minutes_of(BASELINE, SERVERS[:1], prompts=longer)
    busy = rng.uniform(0.3, 1.0, BASELINE)
    itl = (minutes["itl_seconds_sum"] / minutes["itl_seconds_count"]).to_numpy()
    met = minutes["prompt_tokens_total"].to_numpy() * itl / 60.0
    itl = itl + 1.5e-3 * met * (1.0 if all_prefill else busy)
    minutes = minutes.with_columns(
        forward_passes=60.0 * busy / itl,
        prompt_tokens_total=met * 60.0 * busy / itl,
        itl_seconds_sum=pl.col("itl_seconds_count") * itl,
    )
    model = fit(minutes)
    assert isinstance(model, StepTimeModel)
    assert model.misfit_ratio < 0.03
