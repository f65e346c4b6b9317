"""The shipped tests pass and confirm every rule, leaf and edge."""

from __future__ import annotations

import time

from driftwatch.installation import shipped
from driftwatch.ruletests.reader import files_of, read_tests
from driftwatch.ruletests.results import Runner
from driftwatch.ruletests.series import shipped_bases


def test_every_shipped_test_passes_and_nothing_is_untested() -> None:
    reading = read_tests(files_of((), (shipped("rules"),)))
    assert not reading.problems
    runner = Runner(time.monotonic)
    failures = [line for one in reading.tests for line in runner.run(one).lines()]
    assert not failures
    tables = runner.tables
    assert {table.kind: table.missing for table in tables} == dict.fromkeys(
        ("rules that fire", "rules that do not fire", "leaves", "edges"), ()
    )
    assert all(table.total for table in tables)
    assert any(one.test.recording is not None for one in reading.tests)


def test_the_healthy_row_is_one() -> None:
    row = shipped_bases()["healthy"]
    assert row["slo_missed"] is False
    assert row["binding_limit"] == "none"
    assert None not in row.values()
