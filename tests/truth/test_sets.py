from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import truth
from truth_judge.detection_sets import KINDS, PINNED_UNTIL, Kind
from truth_judge.matching import quiet_months
from truth_judge.sets import (
    GRIDS,
    SIZES,
    detection_draws,
    draws,
    healthy_azure,
    healthy_servegen,
)

from driftwatch.testing.fleet.scenario import Scenario
from driftwatch.testing.fleet.scenario_file import read_scenario, shipped_scenarios

SHIPPED = {s.name: s.servers * s.duration / 3600 for s in shipped_scenarios()}


def read(data: object, folder: Path) -> Scenario:
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(data))
    return read_scenario(path)


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.__name__)
def test_a_grid_is_a_scenario_whatever_the_seed(grid: object, tmp_path: Path) -> None:
    for seed in range(6):
        made = grid(np.random.default_rng(seed))  # type: ignore[operator]
        scenario = read(made, tmp_path)
        assert made == grid(np.random.default_rng(seed))  # type: ignore[operator]
        effects = scenario.truth.effects
        assert scenario.truth.baseline is not None
        by_replica: dict[tuple[int, ...], list[tuple[float, float]]] = {}
        for effect in effects:
            assert effect.until is not None and effect.at > scenario.truth.baseline.until
            by_replica.setdefault(effect.replicas, []).append((effect.at, effect.until))
        for windows in by_replica.values():
            assert all(a[1] + 3600 <= b[0] for a, b in pairwise(sorted(windows)))
        cells = Counter((e.kind, e.size) for e in effects)
        assert max(cells.values()) - min(cells.values()) <= 1
    assert grid(np.random.default_rng(1)) != grid(np.random.default_rng(2))  # type: ignore[operator]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_grid_of_the_detection_figures_is_a_scenario_whatever_the_seed(
    kind: Kind, tmp_path: Path
) -> None:
    engines = set()
    for seed in range(6):
        made = kind.make(np.random.default_rng(seed), kind.smoke)
        assert made == kind.make(np.random.default_rng(seed), kind.smoke)
        scenario = read(made, tmp_path)
        engines.add(scenario.engine)
        windows: dict[int, list[tuple[float, float]]] = {}
        for effect in scenario.truth.effects:
            assert effect.at >= PINNED_UNTIL
            for replica in effect.replicas or range(scenario.servers):
                until = scenario.duration if effect.until is None else effect.until
                windows.setdefault(replica, []).append((effect.at, until))
        for own in windows.values():
            assert all(a[1] + 1800 <= b[0] for a, b in pairwise(sorted(own)))
        assert (kind.group == "healthy") == (not windows)
    assert len(engines) > 1  # no draw is of one engine alone


def test_the_detection_set_is_large_enough_for_its_goals() -> None:
    drawn = list(detection_draws("full", 7, None))
    cells: Counter[tuple[str, float | None]] = Counter()
    months = 0.0
    for draw in drawn:
        assert not isinstance(draw.scenario, str)
        days = float(draw.scenario["duration"].removesuffix("d")) - draw.unjudged_days
        months += draw.scenario["pool"]["replicas"] * days / 30.4375 * (draw.group == "healthy")
        for effect in draw.scenario["truth"]["effects"]:
            judged = float(effect["at"].removesuffix("s")) >= 86_400 * draw.unjudged_days
            cells[effect["kind"], effect.get("size")] += judged
    assert months >= 120
    promised = {"loss", "loss-wander-6", "uneven-prompt", "uneven-generation", "shift-prompt"}
    promised |= {"shift-generation", "shift-new-client", "loss-at-cap"}
    assert min(count for (kind, _), count in cells.items() if kind in promised) >= 240
    assert len({draw.seed for draw in drawn}) == len(drawn)


def test_healthy_weeks_have_nothing_in_them(tmp_path: Path, shared_data: Path) -> None:
    for days in (1, 7):
        for data in (healthy_azure(3, days), healthy_servegen(3, days, shared_data / "servegen")):
            scenario = read(data, tmp_path)
            assert scenario.truth.effects == () and scenario.faults == ()
            assert scenario.traffic.changes == ()
            assert scenario.truth.baseline is not None
            assert scenario.duration == days * 86_400


def test_the_full_set_is_large_enough_for_its_goals() -> None:
    drawn = list(draws(SIZES["full"], 7, SHIPPED, None))
    healthy = [d for d in drawn if d.group == "healthy"]
    servers, days, _ = SIZES["full"].healthy
    assert len(healthy) * servers * days / 30.4375 >= 120
    cells: Counter[tuple[str, float | None]] = Counter()
    for draw in drawn:
        if draw.group == "grid":
            assert not isinstance(draw.scenario, str)
            effects = draw.scenario["truth"]["effects"]
            cells.update((effect["kind"], effect["size"]) for effect in effects)
    assert min(cells.values()) >= 240
    seeds = Counter(draw.seed for draw in drawn)
    assert set(seeds.values()) == {1}  # nothing shares a draw
    others = {draw.seed for draw in draws(SIZES["full"], 8, SHIPPED, None)}
    assert not others & set(seeds)


def test_smaller_sets_are_parts_of_larger_ones() -> None:
    names = {name: {d.name for d in draws(size, 7, SHIPPED, None)} for name, size in SIZES.items()}
    assert names["smoke"] < names["standard"] < names["full"]
    assert {"wedged", "kv-pressure", "prompts-x4", "rate-drop"} <= names["smoke"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed", "-1"], "'-1' is not a whole number"),
        (["--seed", "7", "--only", "no-such-thing"], "is called no-such-thing; there are:"),
    ],
)
def test_what_does_not_exist_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        truth.main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_quiet_months_of_nothing_are_nothing() -> None:
    assert quiet_months([]) == {}
