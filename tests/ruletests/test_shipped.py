"""The shipped tests pass and expect every rule and leaf."""

from __future__ import annotations

import time

from driftwatch.installation import shipped
from driftwatch.ruletests.reader import files_of, read_tests
from driftwatch.ruletests.results import Runner
from driftwatch.ruletests.series import shipped_bases


def test_every_shipped_test_passes_and_every_rule_and_leaf_is_expected() -> None:
    reading = read_tests(files_of((), (shipped("rules"),)))
    assert not reading.problems
    runner = Runner(time.monotonic)
    failures = [line for one in reading.tests for line in runner.run(one).lines()]
    assert not failures
    expected = [one for placed in reading.tests for one in placed.test.expect]
    names = {name for one in expected for name in (*(one.alerts or ()), *one.alerts_include)}
    book = reading.tests[0].book
    assert [one.id for one in book.rules if one.enabled and not {one.alert, one.id} & names] == []
    leaves = {leaf for tree in book.trees.values() for leaf in tree.leaves}
    assert leaves - {one.leaf for one in expected} == set()
    assert any(one.test.recording is not None for one in reading.tests)


def test_the_healthy_row_is_one() -> None:
    row = shipped_bases()["healthy"]
    assert row["slo_missed"] is False
    assert row["binding_limit"] == "none"
    assert None not in row.values()
