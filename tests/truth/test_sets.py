from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import truth
from truth_judge.mixed_pools import HELD_OUT, WORKING, _traffic
from truth_judge.sets import MIXED

from driftwatch.fleet.scenario.file import read_scenario
from driftwatch.fleet.scenario.model import Scenario


def read(data: object, folder: Path) -> Scenario:
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(data))
    return read_scenario(path)


@pytest.mark.parametrize("name", sorted(MIXED))
def test_a_mixed_pool_is_a_scenario_whatever_the_seed(name: str, tmp_path: Path) -> None:
    _, make = MIXED[name]
    scenarios = []
    for seed in range(4):
        made = make(np.random.default_rng(seed), 3, 5, 2.0, WORKING)
        assert made == make(np.random.default_rng(seed), 3, 5, 2.0, WORKING)
        scenario = read(made, tmp_path)
        scenarios.append(scenario)
        windows = [(e.at, e.until) for e in scenario.truth.effects]
        assert (name == "mixed-quiet") == (not windows)
        assert scenario.truth.baseline is not None
        for (_, before), (at, _) in pairwise([(0.0, scenario.truth.baseline.until), *windows]):
            assert before is not None and at >= before + 3600
    assert len({one.engine for one in scenarios}) == 4
    assert len({one.pool.serving for one in scenarios}) == 4


def test_traffic_for_the_end_is_none_that_is_worked_with(shared_data: Path) -> None:
    used: dict[str, set[tuple[str, float]]] = {}
    for name, traces in (("work", WORKING), ("end", HELD_OUT)):
        of = replace(traces, servegen=shared_data / "servegen")
        drawn = [_traffic(np.random.default_rng(seed), of, 5) for seed in range(60)]
        used[name] = {
            (
                t["clients"] if t["model_class"] == "m-mid" else t["model_class"],
                float(t["offset"].removesuffix("d") or 0) // 7,
            )
            for t in drawn
            if "model_class" in t
        }
    assert used["work"] and used["end"] and not used["work"] & used["end"]
    assert {clients for clients, _ in used["work"]} == {"m-small", "even"}
    assert {clients for clients, _ in used["end"]} == {"m-small", "odd"}


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
