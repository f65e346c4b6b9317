"""doctor on time: fresh, often enough, a tick's questions in time."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from checkup_cases import NOW, ago, page_text, plan_with, scrapes_of, targets_of, trouble

from driftwatch.doctor.checks import Check, Checkup
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


def _only(found: Checkup) -> Check:
    (check,) = trouble(found)
    return check


def test_a_steady_pool_is_ready(shared_data: Path) -> None:
    found = _checked(shared_data, _source())
    assert trouble(found) == []
    assert found.ready


def _scaled(shared_data: Path, listed: frozenset[str] | None) -> Checkup:
    """b:1 was last scraped 167 s ago, and no interval of it is known."""
    plan = plan_with()
    page = page_text(shared_data)
    scrapes = pl.concat([scrapes_of({"a:1": page}, ago(10)), scrapes_of({"b:1": page}, ago(167))])
    source = _source(intervals={"a:1": 15.0}, listed=listed)
    targets = targets_of(plan, "a:1", "b:1")
    return checkup(scrapes, targets, plan, Inputs(now=NOW, sources=[source]))


def test_a_target_that_its_source_does_not_list_is_a_warning(shared_data: Path) -> None:
    found = _scaled(shared_data, frozenset({"a:1", "node:9100"}))
    check = _only(found)
    assert (check.status, check.disables) == ("WARNING", ())
    assert check.what == "1 of 2 (b:1): not listed by prometheus 0 for 167 s"
    assert check.fix == "scaled down: nothing to do; else service discovery"
    later = found.learning | found.off
    assert {rule for rule, can in found.rules.items() if not can} == later
    assert found.ready


@pytest.mark.parametrize("listed", [None, frozenset({"a:1", "b:1"})])
def test_a_target_that_is_listed_and_not_scraped_disables_every_rule(
    shared_data: Path, listed: frozenset[str] | None
) -> None:
    found = _scaled(shared_data, listed)
    check = _only(found)
    assert (check.status, check.what) == ("MISSING", "1 of 2 (b:1): no scrape for 167 s")
    assert not any(found.rules.values())


def test_a_source_that_lists_none_of_its_servers_is_no_scale_down(shared_data: Path) -> None:
    found = _checked(shared_data, _source(listed=frozenset({"node:9100"})), 100.0)
    check = _only(found)
    assert check.status == "MISSING"
    assert check.what.endswith("; prometheus 0 lists none of its servers now")
    assert check.fix == "look at the scraper and its service discovery"
    assert not found.ready


def test_scrapes_of_the_future(shared_data: Path) -> None:
    check = _only(_checked(shared_data, _source(), -30.0))
    assert check.status == "WRONG"
    assert "30 s in the future" in check.what


@pytest.mark.parametrize(
    ("every", "status", "words"),
    [
        (30.0, None, ""),
        (45.0, "WARNING", "a scrape every 45 s: shares of 10 min stand on 13 scrapes"),
        (120.0, "MISSING", "a scrape every 120 s: most minutes have no two of them"),
    ],
)
def test_how_often(shared_data: Path, every: float, status: str | None, words: str) -> None:
    seen = _source(intervals={"a:1": every, "b:1": every})
    found = trouble(_checked(shared_data, seen))
    assert [c.status for c in found] == ([status] if status else [])
    assert all(words in c.what for c in found)


def test_pages_are_asked_at_the_interval_of_the_configuration(shared_data: Path) -> None:
    seen = _source(kind="pages", intervals={}, every_seconds=90.0)
    check = _only(_checked(shared_data, seen))
    assert (check.status, check.setting, check.fix) == ("MISSING", ("interval",), "interval: 15s")


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
