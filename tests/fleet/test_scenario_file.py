"""Scenario files: every shipped one is sound, and every mistake is named at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftwatch.errors import ConfigError
from driftwatch.fleet.scenario.file import read_scenario, shipped_scenarios
from driftwatch.service.configuration import plan_of_rules

GOOD = """\
name: mine
title: a scenario of mine
duration: 2h
traffic: {requests_per_second: 3.5}
truth: {}
"""


def problems(tmp_path: Path, text: str) -> list[tuple[int | None, int | None, str]]:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_scenario(path)
    assert {p.path for p in caught.value.problems} == {str(path)}
    return [(p.line, p.column, p.message) for p in caught.value.problems]


def test_all_mistakes_at_once_each_at_its_place(tmp_path: Path) -> None:
    text = """\
name: mine
titel: a scenario
title: a scenario
duration: soon
traffic:
  requests_per_second: -1.0
  changes:
    - {at: 10m, prompt_faktor: 2.0}
faults:
  - {kind: slowdown, at: 10m}
  - {kind: restart, at: 10m, ratio: 0.5}
  - {kind: flood, at: 10m}
pool: {serving: {max_num_seqs: 512, max_num_batched_tokens: 256}}
truth: {}
"""
    found = problems(tmp_path, text)
    assert (2, 1, "unknown key titel") in found
    assert (8, 17, "unknown key prompt_faktor") in found
    by_line = {line: message for line, _, message in found}
    assert "above 0" in by_line[6]
    assert by_line[10] == "slowdown needs factor"
    assert by_line[11] == "restart takes no ratio"
    assert by_line[12].startswith("one of slowdown, clock_throttle")
    assert "max_num_batched_tokens (256) is below max_num_seqs (512)" in by_line[13]
    assert 4 in by_line


def test_all_that_does_not_fit_is_told_at_once(tmp_path: Path) -> None:
    text = """\
name: mine
title: a scenario
duration: 2h
traffic:
  requests_per_second: 6
  changes:
    - {at: 3h, rate_factor: 2.0}
faults:
  - {kind: wedge, at: 5h}
  - {kind: wedge, at: 1h, replicas: [7]}
  - {kind: scale, at: 1h, to: 3}
truth:
  baseline: {at: 30m, until: 10m}
  effects:
    - {what: x, kind: x, at: 1h, until: 3h}
    - {what: y, kind: y, at: 1h, until: 59m}
"""
    outside = "is not before the scenario's end, at 7200 s"
    expected = [
        (7, "3h", f"10800 s {outside}"),
        (9, "5h", f"18000 s {outside}"),
        (10, "[7]", "there is no replica 7: the numbers are 0 to 2"),
        (13, "10m", "until is not after at"),
        (15, "3h", f"10800 s {outside}"),
        (16, "59m", "until is not after at"),
    ]
    lines = text.splitlines()
    assert problems(tmp_path, text) == [
        (line, lines[line - 1].index(piece) + 1, message) for line, piece, message in expected
    ]


def test_what_cannot_be_simulated_is_refused_at_its_place(tmp_path: Path) -> None:
    text = """\
name: mine
title: a scenario
duration: 20m
scrape: {interval: 2h}
pool: {gpu: H1000, model: nope, replicas: 2, serving: {num_gpu_blocks: 10}}
traffic: {requests_per_second: 3.0}
truth: {}
"""
    assert [(line, message) for line, _, message in problems(tmp_path, text)] == [
        (4, "1200 s are less than two scrapes"),
        (5, "no GPU 'H1000' in the tables"),
        (5, "no model 'nope' in the tables"),
        (5, "room for 160 tokens, less than max_model_len, 8,192"),
    ]
    large = GOOD.replace("3.5", "1.0e+9"), f"{GOOD}pool: {{replicas: 10001}}"
    for text, most in zip(large, ("100,000", "10,000"), strict=True):
        ((_, _, message),) = problems(tmp_path, text)
        assert message == f"a number at most {most} is wanted here"
    lost = GOOD.replace("{requests_per_second", "{path: nowhere.csv, requests_per_second")
    assert problems(tmp_path, lost) == [(4, 17, f"there is no {tmp_path / 'nowhere.csv'}")]


# Recordings of the field end in these (tests/e2e/test_field_reports.py, 10 and 30), and a rule test
# (rules/tests/batch-size-drift.yaml).
OTHERS = {"clients_give_up", "engine_silent", "spec_decode_acceptance_fell"}


def test_truth_speaks_of_rules_and_leaves_that_are_there() -> None:
    plan = plan_of_rules(())
    rules = {(rule.alert, rule.severity) for rule in plan.rules}
    leaves = {leaf for tree in plan.trees.values() for leaf in tree.leaves}
    # each leaf that a page may carry has a scenario or a recording that ends in it
    told = {effect.leaf for one in shipped_scenarios() for effect in one.truth.effects}
    assert told - {None} >= set(plan.trees["batch-size-drift"].leaves) - OTHERS
    assert not told & OTHERS
    for scenario in shipped_scenarios():
        for effect in scenario.truth.effects:
            said = {(name, "page") for name in effect.pages}
            said |= {(name, "ticket") for name in effect.tickets}
            said |= {(name, "notice") for name in effect.notices}
            assert said <= rules, scenario.name
            assert effect.leaf is None or effect.leaf in leaves, scenario.name
            # a leaf that advises a change names its knob
            changes = effect.leaf in ("token_budget_binding", "concurrency_cap_binding")
            assert changes is (effect.knob is not None)
        assert scenario.truth.baseline is not None
        assert scenario.truth.baseline.until <= min(
            [effect.at for effect in scenario.truth.effects], default=scenario.duration
        )
