"""What a reload keeps of incidents, counters and memory, and how those of changed rules end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from reload_cases import FIRST, LAST, Edited, recorded, rule

from driftwatch.incidents.silence import parse_matchers
from driftwatch.service.run import Service

Start = Callable[..., Edited]


@pytest.fixture
def start(shared_data: Path, tmp_path: Path) -> Start:
    return lambda *rules, **config: Edited(tmp_path, recorded(shared_data), *rules, **config)


def test_minutes_towards_for_count_on(start: Start) -> None:
    edited = start(rule("Waiting", **{"for": "4m"}))
    assert edited.minutes(FIRST + 1) == []
    edited.edit(rule("Waiting", **{"for": "4m"}), rule("Other", when="scrapes > 99"))
    assert edited.minutes(FIRST + 3) == [(FIRST + 3, "Waiting", "firing", None)]


def test_a_longer_for_keeps_what_fires_and_holds_back_what_does_not_yet(start: Start) -> None:
    edited = start(rule("Fires"), rule("Waits", **{"for": "3m"}))
    edited.minutes(FIRST + 1)
    assert edited.open() == {"Fires": "firing", "Waits": "pending"}
    edited.edit(rule("Fires", **{"for": "30m"}), rule("Waits", **{"for": "5m"}))
    assert edited.minutes(FIRST + 3) == []
    assert edited.open()["Fires"] == "firing"
    assert edited.minutes(LAST + 1) == [
        (FIRST + 4, "Waits", "firing", None),
        (LAST + 1, "Fires", "resolved", None),
        (LAST + 1, "Waits", "resolved", None),
    ]


def test_removed_and_switched_off_rules_end_their_incidents_with_the_reason(start: Start) -> None:
    stays, waits = rule("Stays"), rule("Waits", **{"for": "10m"})
    edited = start(stays, waits, rule("Fires"), rule("Loud"))
    edited.minutes(FIRST + 1)
    off = rule("Loud", enabled="false", reason="too loud")
    edited.edit(stays, off, rule("New", **{"for": "2m"}))
    assert edited.minutes(FIRST + 2) == [
        (FIRST + 2, "Fires", "resolved", "the rule was removed"),
        (FIRST + 2, "Loud", "resolved", "the rule was switched off: too loud"),
    ]
    # who waited is dropped, nobody was told of it; who is new begins anew
    assert edited.open() == {"Stays": "firing", "New": "pending"}
    page = edited.outcome.transitions[0].incident.page
    assert page is not None and "the rule was removed" in page.summary
    assert edited.minutes(FIRST + 3) == [(FIRST + 3, "New", "firing", None)]


def test_an_open_incident_keeps_its_severity_and_the_next_has_the_new_one(start: Start) -> None:
    edited = start(rule("Waiting"))
    edited.minutes(FIRST + 1)
    edited.edit(rule("Waiting", severity="page"))
    edited.minutes(FIRST + 2)
    (before,) = edited.store.open_incidents().values()
    edited.edit(rule("Waiting", severity="page", when="waiting_requests >= 500"))
    edited.minutes(FIRST + 3)
    edited.edit(rule("Waiting", severity="page"))
    edited.minutes(FIRST + 4)
    (after,) = edited.store.open_incidents().values()
    assert (before.severity, after.severity) == ("ticket", "page")
    assert before.id != after.id


def test_another_condition_ends_an_incident_as_that_says(start: Start) -> None:
    edited = start(rule("Waiting"))
    edited.minutes(FIRST + 1)
    edited.edit(rule("Waiting", when="waiting_requests >= 500", keep_firing_for="2m"))
    assert edited.minutes(FIRST + 3) == [(FIRST + 3, "Waiting", "resolved", None)]


def test_acknowledgement_and_silence_stay(start: Start) -> None:
    edited = start(rule("Waiting"), rule("Silenced", severity="page"))
    now = edited.clock.now()
    matchers = parse_matchers(["rule=Silenced"])
    until = now + timedelta(hours=1)
    edited.store.add_silence(matchers, until=until, by="ana", at=now, comment="work on it")
    edited.minutes(FIRST + 1)
    (waiting,) = (i for i in edited.store.open_incidents().values() if i.rule == "Waiting")
    edited.store.acknowledge(waiting.id, "ana", edited.clock.now())
    edited.edit(rule("Waiting"), rule("Silenced", severity="page"), rule("Third"))
    edited.minutes(FIRST + 2)
    after = {one.rule: one for one in edited.store.open_incidents().values()}
    assert after["Waiting"].acknowledged_by == "ana"
    assert after["Silenced"].silenced_by is not None
    assert after["Third"].state == "firing"


def test_a_pool_with_another_name_ends_the_pools_incident_with_that_name(start: Start) -> None:
    edited = start(rule("Waiting", per="pool"))
    edited.minutes(FIRST + 1)
    edited.config.write_text(edited.config.read_text().replace("chat", "rag"))
    edited.look()
    why = "the pool is gone: its targets are in pool rag now"
    assert edited.minutes(FIRST + 2) == [
        (FIRST + 2, "Waiting", "resolved", why),
        (FIRST + 2, "Waiting", "firing", None),
    ]
    (incident,) = edited.store.open_incidents().values()
    assert incident.target["pool"] == "rag"


def _watched(edited: Edited, until: int, reload_at: range, restart_at: int | None) -> pl.DataFrame:
    """Evidence of every minute; in some, the same rules and another comment."""
    rows = []
    for minute in range(1, until + 1):
        edited.minutes(minute)
        rows.append(edited.outcome.rows)
        if minute in reload_at:
            edited.edit(rule("Waiting", **{"for": "2m"}), f"      # {minute}")
        if minute == restart_at:
            edited.service.stop()
            edited.start()
    return pl.concat([r for r in rows if len(r)])


@pytest.mark.slow
def test_a_reload_changes_no_column(shared_data: Path, tmp_path: Path) -> None:
    """The memory of the detectors goes on, and a later restart finds it again."""
    through, reloaded = tmp_path / "through", tmp_path / "reloaded"
    one, other = (
        Edited(_made(folder), recorded(shared_data), rule("Waiting", **{"for": "2m"}), begin=0)
        for folder in (through, reloaded)
    )
    expected = _watched(one, 18, range(0), None)
    assert_frame_equal(_watched(other, 18, range(3, 12), 13), expected)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_service_has_the_old_plan_until_its_tick_is_over(start: Start) -> None:
    """A reload that comes while a tick is under way waits for it."""
    from threading import Event, Thread

    edited = start(rule("Old"))
    edited.minutes(FIRST)
    under_way, go_on = Event(), Event()
    collect = edited.source.collect

    def slow(since: object, until: object) -> object:
        under_way.set()
        assert go_on.wait(30)
        return collect(since, until)  # type: ignore[arg-type]

    edited.source.collect = slow  # type: ignore[method-assign, assignment]
    happened: list[object] = []
    tick = Thread(target=lambda: happened.extend(edited.minutes(FIRST + 1)))
    tick.start()
    assert under_way.wait(30)
    reload = Thread(target=lambda: edited.edit(rule("New")))
    reload.start()
    reload.join(0.5)
    assert reload.is_alive()
    go_on.set()
    tick.join(30)
    reload.join(30)
    assert edited.outcome.verdicts.columns == ["Old"]
    assert isinstance(edited.service, Service)
    assert edited.minutes(FIRST + 2)[0] == (FIRST + 2, "Old", "resolved", "the rule was removed")
