from __future__ import annotations

import json
from pathlib import Path

import pytest
from truth_judge.fleets import case_of

from driftwatch.fleet.scenario.file import scenario_named, shipped_scenarios
from driftwatch.fleet.truth import write_truth


@pytest.mark.parametrize("scenario", shipped_scenarios(), ids=lambda s: s.name)
def test_every_shipped_truth_is_read_whole(scenario: object, tmp_path: Path) -> None:
    made = scenario_named(scenario.name)  # type: ignore[attr-defined]
    write_truth(made, 3, tmp_path)
    case = case_of(tmp_path, made.name, "seed 3")
    assert len(case.instances) == made.servers
    assert len(case.episodes) == len(made.truth.effects)
    assert (case.reference is None) == (made.truth.baseline is None)
    stretch = case.stretch([])
    for episode, effect in zip(case.episodes, made.truth.effects, strict=True):
        assert episode.rules == {*effect.pages, *effect.tickets, *effect.notices}
        assert episode.instances <= set(case.instances)
        assert episode.start_seconds - case.start_seconds == effect.at
        assert episode.grace_seconds == effect.grace
        assert (episode.leaf, episode.knob) == (effect.leaf, effect.knob)
    for instance in case.instances:
        for first, last in stretch.stays(instance):
            assert case.start_seconds <= first < last <= case.end_seconds


def test_replicas_that_come_and_go_count_only_while_they_are_listed(tmp_path: Path) -> None:
    made = scenario_named("scale-1-200-1")
    write_truth(made, 3, tmp_path)
    case = case_of(tmp_path, made.name, "seed 3")
    stretch = case.stretch([])
    assert case.reference is not None
    whole = case.end_seconds - case.reference[1]  # the baseline is not judged
    stays = [sum(b - a for a, b in stretch.stays(instance)) for instance in case.instances]
    assert stays[0] == whole
    assert set(stays[1:]) == {44 * 60.0}
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert truth["schema_version"] == 1
