"""doctor on time: fresh, often enough, a tick's questions in time."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from checkup_cases import NOW, ago, page_text, plan_with, scrapes_of, targets_of, trouble

from driftwatch.doctor.checks import Checkup
from driftwatch.doctor.checkup import Inputs, checkup
from driftwatch.doctor.sources import SourceAnswer


def _source(**more: object) -> SourceAnswer:
    said: dict[str, object] = {
        "name": "prometheus 0",
        "kind": "prometheus",
        "setting": ("sources", 0),
        "instances": frozenset({"a:1", "b:1"}),
        "settle_seconds": 15.0,
        "intervals": {"a:1": 15.0, "b:1": 15.0},
    }
    return SourceAnswer(**{**said, **more})  # type: ignore[arg-type]


def _checked(shared_data: Path, source: SourceAnswer, age: float = 10.0) -> Checkup:
    plan = plan_with()
    page = page_text(shared_data)
    scrapes = scrapes_of({"a:1": page, "b:1": page}, ago(age))
    return checkup(scrapes, targets_of(plan, "a:1", "b:1"), plan, Inputs(now=NOW, sources=[source]))


def _scaled(shared_data: Path, listed: frozenset[str] | None) -> Checkup:
    """b:1 was last scraped 167 s ago, and no interval of it is known."""
    plan, page = plan_with(), page_text(shared_data)
    scrapes = pl.concat([scrapes_of({"a:1": page}, ago(10)), scrapes_of({"b:1": page}, ago(167))])
    source = _source(intervals={"a:1": 15.0}, listed=listed)
    targets = targets_of(plan, "a:1", "b:1")
    return checkup(scrapes, targets, plan, Inputs(now=NOW, sources=[source]))


def test_a_target_that_its_source_does_not_list_is_a_warning(shared_data: Path) -> None:
    found = _scaled(shared_data, frozenset({"a:1", "node:9100"}))
    (check,) = trouble(found)
    assert (check.status, check.disables) == ("WARNING", ())
    assert check.what == "1 of 2 (b:1): not listed by prometheus 0 for 167 s"
    assert check.fix == "scaled down: nothing to do; else service discovery"
    assert found.ready


@pytest.mark.parametrize("listed", [None, frozenset({"a:1", "b:1"})])
def test_a_target_that_is_listed_and_not_scraped_disables_every_rule(
    shared_data: Path, listed: frozenset[str] | None
) -> None:
    found = _scaled(shared_data, listed)
    (check,) = trouble(found)
    assert (check.status, check.what) == ("MISSING", "1 of 2 (b:1): no scrape for 167 s")
    assert not any(found.rules.values())


def _every(seconds: float) -> dict[str, object]:
    return {"intervals": {"a:1": seconds, "b:1": seconds}}


NOBODY = frozenset({"node:9100"})


@pytest.mark.parametrize(
    ("source", "age", "status", "words"),
    [
        ({}, 10.0, None, ""),
        (_every(30.0), 10.0, None, ""),
        (_every(45.0), 10.0, "WARNING", "a scrape every 45 s: shares of 10 min stand on 13"),
        (_every(120.0), 10.0, "MISSING", "a scrape every 120 s: most minutes have no two of"),
        ({}, -30.0, "WRONG", "30 s in the future"),
        # a source that lists none of its servers is no scale-down
        ({"listed": NOBODY}, 100.0, "MISSING", "; prometheus 0 lists none of its servers now"),
        # pages are asked at the interval of the configuration
        (
            {"kind": "pages", "intervals": {}, "every_seconds": 90.0},
            10.0,
            "MISSING",
            "a scrape every 90 s",
        ),
    ],
)
def test_how_often_and_how_fresh(
    shared_data: Path, source: dict[str, object], age: float, status: str | None, words: str
) -> None:
    found = _checked(shared_data, _source(**source), age)
    assert [c.status for c in trouble(found)] == ([status] if status else [])
    assert all(words in c.what for c in trouble(found))
    assert found.ready is (status in (None, "WARNING"))


def test_a_process_that_is_read_once_is_named_however_many_problems_there_are(
    shared_data: Path,
) -> None:
    partial = tuple(f"query {n}: Partial: shard {n} is down" for n in range(5))
    twice = "one process that two sources show, as a:1 (pages) and b:1 (p): read once, as a:1"
    found = _checked(shared_data, _source(problems=(*partial, twice, twice)))
    said = [c.what for c in trouble(found)]
    assert said[0] == f"{twice}; 1 more such (--json)"
    assert said[-1] == "not read: 2 more (--json)"


def test_a_source_that_brings_nothing(shared_data: Path) -> None:
    silent = _source(name="prometheus 1", instances=frozenset(), problems=("AuthFailed: 401",))
    empty = _source(name="prometheus 2", instances=frozenset(), setting=("sources", 2))
    plan = plan_with()
    found = checkup(
        scrapes_of({"a:1": page_text(shared_data)}, ago(5)),
        targets_of(plan, "a:1"),
        plan,
        Inputs(
            now=NOW,
            sources=[_source(), silent, empty],
        ),
    )
    first, second = trouble(found)
    assert (first.status, first.what) == ("MISSING", "no scrapes: AuthFailed: 401")
    assert "answers, but has no vLLM server" in second.what
    assert second.setting == ("sources", 2, "match")
    assert not found.ready
