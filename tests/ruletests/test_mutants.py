"""The shipped tests can fail: they notice a threshold moved by 7 %, and a node left out."""

from __future__ import annotations

from collections import Counter

import pytest
from rule_mutants import Judge, rule_mutants, tree_mutants

from driftwatch.installation import shipped
from driftwatch.ruletests.files import files_of
from driftwatch.ruletests.reader import read_tests

# What no test can notice, each with why.
_STUCK = "EngineStuck fires from 120 s on and holds it back"
ALIKE = {
    f"{alert} precondition: …n IS NULL OR seconds_since_last_token < 120 → 128.4": _STUCK
    for alert in ("BatchDrift", "BatchLimitBinding")
} | {"GpuLost when: …gpus_lost > 0 → 0.05": "GPUs are counted in whole numbers"}

# Alerts whose tests are thin: so many of their mutants are not noticed. Only fewer, never more.
THIN = {
    "AcceptanceFell": 12,
    "PhaseMixShift": 30,
    "PrefixHitsFell": 12,
    "QueueSpike": 19,
    "RequestsRejected": 36,
}


@pytest.fixture(scope="module")
def judge() -> Judge:
    reading = read_tests(files_of((), (shipped("rules"),)))
    assert not reading.problems
    return Judge(reading.tests)


def test_a_changed_rule_fails_a_test(judge: Judge) -> None:
    mutants = list(rule_mutants(judge.book.rules))
    assert len(mutants) > 200
    alive = [one for one in mutants if not judge.kills_rule(one)]
    thin = Counter(one.rule.alert for one in alive if one.rule.alert in THIN)
    assert {one.name for one in alive if one.rule.alert not in THIN} == set(ALIKE)
    assert {alert: count for alert, count in thin.items() if count > THIN[alert]} == {}


def test_a_changed_tree_fails_a_test(judge: Judge) -> None:
    trees = judge.book.trees
    mutants = [
        mutant
        for tree in trees.values()
        for mutant in tree_mutants(tree, trees.get(tree.continues or ""))
    ]
    assert len(mutants) > 200
    alive = {one.name for one in mutants if not judge.kills_tree(one)}
    assert alive == set()
