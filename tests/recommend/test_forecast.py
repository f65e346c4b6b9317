"""Shares in target, capacity and the choice among settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np
import pytest
from engine_minutes import BLOCKS, H100_8B, engine_minutes, requests_of

from driftwatch.model import Slo
from driftwatch.recommend.advice import Candidate
from driftwatch.recommend.forecast import (
    IMPOSSIBLE,
    Draw,
    capacity,
    figures,
    share_in_target,
    within,
)
from driftwatch.recommend.search import Gain, Option, chosen, single_knobs
from driftwatch.recommend.server import Knobs
from driftwatch.recommend.situation import model_check
from driftwatch.recommend.window import Window
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Trial

# a step of 0.1 s, whatever is in it: what becomes of requests is counted by hand
TENTH = StepTime(0.1, 0.0, 0.0, 0.0)
ALONE = SchedulerConfiguration(1, 512, None, async_scheduling=False)


def every_second(seconds: float, generation: int = 20) -> Draw:
    """One request a second, each in the engine for a tenth of a second a token."""
    at = np.arange(0.0, seconds)
    requests = make_requests(at, np.ones(len(at)), np.full(len(at), generation))
    return Draw(requests, seconds, TENTH, ALONE, 1.0)


def test_the_share_in_target_at_an_overload_is_that_of_a_count_by_hand() -> None:
    """Each takes 2 s and one comes each second: the k-th waits k seconds."""
    draw, slo = every_second(3600.0), Slo(ttft_seconds=900.05)
    waits = np.arange(3600) * 1.0 + 0.1
    judged = np.arange(3600) >= 360
    by_hand = float((waits <= 900.05)[judged].mean())
    assert share_in_target(draw, ALONE, slo) == pytest.approx(by_hand, abs=1e-6)
    # of a minute of it: the rest of the hour is as its last third, where all wait too long
    short = every_second(60.0)
    inside = (np.arange(60) + 0.1 <= 20.05)[np.arange(60) >= 6].mean()
    share = share_in_target(short, ALONE, Slo(ttft_seconds=20.05))
    assert share == pytest.approx(inside * 60 / 3600, abs=1e-6)


@pytest.mark.parametrize(
    ("slo", "seats", "share"),
    [
        (None, 1, 0.0),  # judged by a start within a second
        (None, 2, 1.0),
        (Slo(ttft_seconds=0.35), 2, 1.0),
        (Slo(tpot_seconds=0.11), 1, 1.0),  # it holds while the queue grows
        (Slo(ttft_seconds=0.35, tpot_seconds=0.09), 2, 0.0),
    ],
)
def test_each_target_counts(slo: Slo | None, seats: int, share: float) -> None:
    draw = every_second(3600.0)
    seated = replace(ALONE, max_num_seqs=seats)
    found = share_in_target(draw, seated, slo)
    assert found == pytest.approx(share, abs=0.06)


REQUESTS = requests_of(9.0, 600.0, 200.0)
SETTINGS = SchedulerConfiguration(64, 2048, BLOCKS)
DRAW = Draw(REQUESTS, 1200.0, H100_8B, SETTINGS, 1.0)
SLO = Slo(1.0, 0.05)


def test_capacity_is_the_rate_up_to_which_targets_are_met() -> None:
    found = capacity(DRAW, SETTINGS, SLO, 3.0)
    assert found is not None

    def share(rate: float) -> float:
        first = REQUESTS.take(slice(3000))
        paced = replace(first, arrival_seconds=first.arrival_seconds * 9.0 / rate)
        run = Trial(paced, SETTINGS).run(H100_8B)
        return float((run.finished & within(run, SLO))[300:].mean())

    assert share(0.96 * found) >= SLO.share > share(1.06 * found)


def test_a_capacity_that_nothing_tells_is_unknown() -> None:
    few = replace(DRAW, requests=REQUESTS.take(slice(19)))
    assert capacity(few, SETTINGS, SLO) is None
    assert capacity(DRAW, SETTINGS, Slo(1e-6, None)) == 0.0
    assert capacity(DRAW, replace(SETTINGS, num_gpu_blocks=20), SLO) is None  # cannot run


def test_figures_are_those_of_the_engines_own_pages() -> None:
    rows = Window(engine_minutes(REQUESTS, SETTINGS).slice(2))
    found = figures(DRAW, SETTINGS)
    itl = rows.ratio("itl_seconds_sum", "itl_seconds_count")
    assert found["itl_seconds"] == pytest.approx(itl, rel=0.02)
    assert found["running_requests"] == pytest.approx(rows.mean("running_requests"), rel=0.05)
    ttft = rows.ratio("ttft_seconds_sum", "ttft_seconds_count")
    assert found["ttft_seconds"] == pytest.approx(ttft, rel=0.05)
    assert found["preemptions"] == 0.0 and found["keeps_up"]


@pytest.mark.parametrize(
    ("speed", "failed", "refused"),
    [
        (1.0, (), False),
        (0.85, ("itl_seconds", "running_requests"), False),  # said, and answered all the same
        (0.5, ("itl_seconds", "running_requests"), True),
    ],
)
def test_a_check_fails_on_the_figures_that_are_off(
    speed: float, failed: tuple[str, ...], refused: bool
) -> None:
    rows = Window(engine_minutes(REQUESTS, SETTINGS))
    fast = replace(H100_8B, c0_seconds=speed * H100_8B.c0_seconds)
    check = model_check([replace(DRAW, step_time=fast)], rows)
    assert (tuple(check.failed), check.refused) == (failed, refused)
    for name in failed:
        assert check.compared[name].off_ratio < -0.10


# --- the choice


def gain(knobs: Knobs, *gains: float, share: float = 0.9, peak: float = 0.4) -> Gain:
    """Half of the draws have the first gain, and so on; ``peak``: at the highest demand."""
    drawn = np.repeat(np.array(gains), 16 // len(gains))
    return Gain(knobs, drawn, np.full(len(drawn), share), peak)


S128, S256, S512 = ({"max_num_seqs": value} for value in (128.0, 256.0, 512.0))
B4096 = {"max_num_batched_tokens": 4096.0}
TODAY = SchedulerConfiguration(64, 2048, BLOCKS)


@pytest.mark.parametrize(
    ("gains", "capacities", "prices", "advised"),
    [
        ([gain(S128, 0.2)], (), (), S128),
        ([gain(S128, 0.039)], (), (), None),  # less than 4 points
        ([gain(S128, 0.39), gain(S256, 0.4)], (), (), S128),  # within two points: the smaller move
        ([gain(S128, 0.39, peak=0.2), gain(S256, 0.4)], (), (), S256),  # too few at more demand
        ([gain(S128, 0.4), gain(S256, 0.4)], (10, 12), (1, 1), S256),  # more capacity …
        ([gain(S128, 0.4), gain(S256, 0.4)], (10, 12), (1, 2), S128),  # … not at a higher price
        ([gain(S128, 0.4), gain(S256, 0.4)], (10, 10.5), (1, 1), S128),  # a tenth is the same
        ([gain(S128, 0.4), gain(S256, 0.4)], (13, 16), (1, 1), S128),  # the smaller has room
        ([gain({**S128, **B4096}, 0.41), gain(S512, 0.4)], (), (), S512),  # one knob before two
        ([gain(S128, *([0.5] * 7), -0.02)], (), (), None),  # one draw in eight loses two points
        ([gain(S128, *([0.5] * 15), -0.02)], (), (), S128),  # one in sixteen
        ([gain(S128, 0.2, share=0.29)], (), (), None),  # most requests miss still
        ([gain(S128, 0.2, share=IMPOSSIBLE)], (), (), None),
    ],
)
def test_what_is_advised(
    gains: Sequence[Gain], capacities: Sequence[float], prices: Sequence[float], advised: Knobs
) -> None:
    rows = [
        Candidate(one.knobs, capacity_requests_per_second=capacity, itl_p99_seconds=price)
        for one, capacity, price in zip_longest(gains, capacities, prices)
    ]
    found = chosen(list(map(Option, gains, rows)), TODAY, 9.0)
    assert (None if found is None else found.gain.knobs) == advised


def test_a_gain_has_a_range_that_holds_its_mean_and_a_chance_of_harm() -> None:
    one = gain(S128, 0.0, 0.1, 0.2, -0.1)
    assert one.mean == pytest.approx(0.05)
    assert one.range == pytest.approx((-0.1, 0.2))
    assert one.chance_of_harm == 0.25 and not one.is_safe


def test_nothing_is_tried_that_vllm_refuses() -> None:
    today = SchedulerConfiguration(256, 512, BLOCKS)
    values = [
        one["max_num_seqs"]
        for one in single_knobs(today, budget_known=True)
        if "max_num_seqs" in one
    ]
    assert values and max(values) == 512.0  # never above the budget
    known = {name for one in single_knobs(today, budget_known=False) for name in one}
    assert "max_num_batched_tokens" not in known


def test_the_capacity_that_few_requests_tell_is_that_of_a_lasting_load() -> None:
    """36 requests an hour never queue at any pace, and 3,000 hardly fill 1,024 seats."""
    wide = SchedulerConfiguration(256, 2048, BLOCKS)
    few = Draw(requests_of(0.01, 1000.0, 100.0, minutes=60), 3600.0, H100_8B, wide, 1.0)
    many = Draw(requests_of(5.0, 1000.0, 100.0, minutes=10), 600.0, H100_8B, wide, 1.0)
    told, lasting = (capacity(draw, wide, Slo(1.0, 0.05)) for draw in (few, many))
    assert told is not None and told == pytest.approx(lasting, rel=0.3)
    # by the engine itself over an hour: all in target at 24 requests a second, none at 26
    seats = SchedulerConfiguration(1024, 2048, BLOCKS)
    crowd = Draw(requests_of(50.0, 300.0, 600.0, minutes=1), 60.0, H100_8B, seats, 1.0)
    assert capacity(crowd, seats, Slo(1.0, 0.05)) == pytest.approx(25.0, rel=0.05)
