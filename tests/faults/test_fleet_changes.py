"""Servers, labels and buckets that change while an incident is open; clocks that never agreed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from open_incident_cases import (
    BACK,
    BEGIN,
    END,
    FAULT_FROM,
    FAULT_UNTIL,
    FIRING,
    LOST,
    QUEUES_UNTIL,
    RESOLVED,
    Alter,
    Row,
    Server,
    Story,
    Tell,
    during,
    fleet,
    gone,
    stories,
)

CHANGED = 8  # the minute in which labels, buckets and counters change


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Tell]:
    with stories(tmp_path) as tell:
        yield tell


def unchanged(_: float, row: Row) -> Row:
    return row


def down(_: float, __: Row) -> Row:
    return {"up": 0.0}


def begun_anew(minute: float, row: Row) -> Row:
    """Every counter, at once; the processes are the same."""
    if minute < CHANGED:
        return row
    at = 100.0 * 60 * CHANGED
    return {n: v - 1e6 - at if n.endswith("_total") else v for n, v in row.items()}


def restarted(minute: float, row: Row) -> Row:
    """Down, then without a metric of vLLM while it loads, then with counters from zero."""
    if minute < FAULT_FROM:
        return row
    if minute < CHANGED:
        return {"up": 0.0}
    began = {"process_start_time_seconds": BEGIN.timestamp() + 60 * CHANGED}
    if minute < CHANGED + 3:
        return {"up": 1.0, **began}
    return {**begun_anew(minute, row), **began}


def pool(name: str, alter: Alter = unchanged, altered: int = 4, **rest: Any) -> list[Server]:
    """A fleet in a namespace, the first servers altered."""
    rest = {"labels": lambda _: {"namespace": name}} | rest
    return [
        replace(one, name=f"{name}-{n}:8000", alter=alter if n < altered else unchanged, **rest)
        for n, one in enumerate(fleet())
    ]


# namespace → its servers, the counts of its ticket, if there is one, and the reason on it
FAULTS = {
    "half": (pool("half", during(gone), 2), "", ""),  # not listed: retired, not lost
    "all": (pool("all", during(gone)), "", ""),
    "down": (pool("down", during(down)), "4 of 4", "up == 0"),
    "reset": (pool("reset", begun_anew), "", ""),
    "restarted": (pool("restarted", restarted, 1), "", ""),
}


def lives(story: Story) -> dict[str, list[tuple[str, str]]]:
    """Instance or pool → its pages in order; each alert of it is one incident, no page twice."""
    told: dict[str, list[tuple[str, str]]] = {}
    ids: dict[tuple[str, str], set[str]] = {}
    for page in story.inbox.pages:
        is_own = page["alert"] == "Queues"
        whose = page["servers"]["first"][0] if is_own else page["pool"]
        told.setdefault(whose, []).append((page["event"], page["alert"]))
        ids.setdefault((whose, page["alert"]), set()).add(page["incident"])
    assert all(len(set(pages)) == len(pages) for pages in told.values())
    assert all(len(one) == 1 for one in ids.values())
    return told


def why_missing(page: dict[str, Any]) -> str:
    """The reason on a ticket about coverage."""
    return str(page["evidence"]["coverage_missing_inputs"]["reason"])


def test_each_incident_stays_one(tell: Tell) -> None:
    """One pool for each fault, all in the same minutes."""
    story, _ = tell([server for servers, *_ in FAULTS.values() for server in servers], pools=())
    assert story.until(FAULT_FROM) == [FIRING] * len(FAULTS)
    story.until(QUEUES_UNTIL)
    assert story.open_alerts() == ["Queues"] * len(FAULTS)
    story.until(END)
    told = lives(story)
    losses = {
        page["labels"]["pool"].partition("/")[0]: (page["summary"], why_missing(page))
        for page in story.inbox.pages
        if (page["event"], page["alert"]) == LOST
    }
    for name, (_, counts, reason) in FAULTS.items():
        assert told.pop(f"{name}-0:8000") == [FIRING, RESOLVED], name
        summary, why = losses.get(name, ("", ""))
        assert (counts in summary, why) == (True, reason), name
        assert told.pop(f"{name}/m", None) == ([LOST, BACK] if counts else None), name
    assert told == {}


@pytest.mark.slow
def test_warnings_while_servers_are_missing(tell: Tell) -> None:
    """Who is missing from a partial answer is not gone; nor is it well."""
    story, api = tell(pool("half", during(gone), 2) + pool("all", during(gone)), pools=())
    story.until(FAULT_FROM)
    api.warnings = ["querying a store failed"]
    assert story.until(FAULT_UNTIL) == [LOST] * 2
    assert story.open_alerts() == ["CoverageLost"] * 2 + ["Queues"] * 2
    api.warnings = []
    story.until(END)
    assert lives(story) == {
        **{f"{name}-0:8000": [FIRING, RESOLVED] for name in ("half", "all")},
        **{f"{name}/m": [LOST, BACK] for name in ("half", "all")},
    }


@pytest.mark.slow
def test_a_clock_that_was_ahead_from_the_start(tell: Tell) -> None:
    """Prometheus never has what is asked for: the ticket names the clock, and nobody is well."""
    story, _ = tell([Server("chat-0:8000", (1, 24)), Server("chat-1:8000")], ahead=5.0)
    assert story.until(10) == [LOST]
    (ticket,) = story.inbox.pages
    assert "2 of 2" in ticket["summary"]
    assert why_missing(ticket) == "prometheus 0: its clock is 300 s behind"
    story.ahead = 0.0  # put right: the minutes that were asked for are waited for
    assert story.until(15) == []
    assert sorted(story.until(18)) == [FIRING, BACK]
    story.until(END)
    assert lives(story) == {"chat-0:8000": [FIRING, RESOLVED], "chat": [LOST, BACK]}
