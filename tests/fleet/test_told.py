"""What was injected beside what was said: found, late, missed, extra, and never prettier."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from small_page import small_page

from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.truth import Fired, compared, fired_incident
from driftwatch.model import Advice, Diagnosis, KnobMove, Reason


def scenario(**effect: Any) -> Scenario:
    effects = [{"what": "x", "kind": "x", "at": "1h", **effect}] if effect else []
    return Scenario.model_validate(
        {
            "name": "x",
            "title": "x",
            "duration": "2h",
            "traffic": {"requests_per_second": 1.0},
            "truth": {"effects": effects},
        }
    )


def said(
    made: Scenario,
    minutes: float,
    alert: str = "BatchLimitBinding",
    severity: str = "page",
    server: int | None = 0,
    leaf: str | None = None,
    knob: str | None = None,
) -> Fired:
    at: datetime = made.start + timedelta(minutes=minutes)
    instance = None if server is None else f"chat-8b-{server}:8000"
    return Fired(at, alert, severity, instance, leaf, knob)


def words(made: Scenario, *findings: Fired) -> list[list[tuple[str, str]]]:
    return [[(line.word, line.text) for line in lines] for lines in compared(made, findings)]


def test_other_and_missed() -> None:
    made = scenario(
        pages=["BatchLimitBinding", "SlowerAtEqualLoad"],
        notices=["LengthDrift"],
        leaf="kv_pressure",
        knob="max_num_batched_tokens",
    )
    found, rest = words(made, said(made, 75, leaf="undetermined", knob="max_num_seqs"))
    assert found == [
        ("FOUND", "page BatchLimitBinding after 15 min, 1 of 2 servers"),
        ("MISSED", "notice LengthDrift"),
        ("OTHER", "leaf kv_pressure: 0 of 1 times, else undetermined"),
        ("OTHER", "advice max_num_batched_tokens: 0 of 1 times, else max_num_seqs"),
    ]
    assert rest == []


@pytest.mark.parametrize(
    "late",
    [
        {"minutes": 59.0},  # before it
        {"minutes": 110.0},  # after its grace
        {"minutes": 70.0, "server": 1},  # another server
        {"minutes": 70.0, "severity": "ticket"},
        {"minutes": 70.0, "alert": "LengthDrift"},
    ],
)
def test_what_belongs_to_nothing_is_extra(late: dict[str, Any]) -> None:
    made = scenario(pages=["BatchLimitBinding"], replicas=[0], until="90m", grace="15m")
    found, rest = words(made, said(made, **late))
    assert found == [("MISSED", "page BatchLimitBinding")]
    assert [word for word, _ in rest] == ["EXTRA"]


def test_nothing_injected_nothing_said_is_quiet_and_one_word_is_not() -> None:
    made = scenario()
    assert words(made) == [[("QUIET", "no page, ticket or notice was sent, and none was due")]]
    ((word, text),) = words(made, said(made, 30))[0]
    assert (word, text) == ("EXTRA", "page BatchLimitBinding at Mon 08:30 UTC, chat-8b-0:8000")


def test_what_a_page_tells() -> None:
    none = Advice(action="none", reason=Reason("x", "y"))
    page = small_page(labels={"instance": "a:1"}, advice=none)
    assert fired_incident(page).knob is None and fired_incident(page).leaf is None
    healthy = Diagnosis("batch-size-drift", "healthy", ())
    move = KnobMove("max_num_seqs", 8.0, 40.0)
    change = Advice(action="change", reason=none.reason, moves=(move,))
    found = fired_incident(page.model_copy(update={"advice": change, "diagnosis": healthy}))
    assert (found.knob, found.leaf, found.instance) == ("max_num_seqs", "healthy", "a:1")
