"""Samples that break while incidents are open, each server its own way: none resolves falsely."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from open_incident_cases import (
    END,
    FAULT_FROM,
    FAULT_UNTIL,
    FIRING,
    QUEUES_FROM,
    QUEUES_UNTIL,
    RESOLVED,
    Row,
    Server,
    Tell,
    during,
    gone,
    stories,
)

WAITING, TOKENS = "vllm:num_requests_waiting", "vllm:generation_tokens_total"


def no_number(_: float, row: Row) -> Row:
    return {**row, WAITING: math.nan, TOKENS: math.inf}


def begun_anew(_: float, row: Row) -> Row:
    return {**row, TOKENS: row[TOKENS] - 1e6}


def renamed(_: float, row: Row) -> Row:
    return {("vllm:num_waiting" if name == WAITING else name): row[name] for name in row}


CHANGES = {"nan": no_number, "reset": begun_anew, "renamed": renamed, "gone": gone}
WAITS = (QUEUES_FROM, QUEUES_UNTIL)


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Tell]:
    with stories(tmp_path) as tell:
        yield tell


def test_each_incident_stays_one_and_resolves_when_requests_wait_no_more(tell: Tell) -> None:
    servers = [
        Server(f"{n}:8000", WAITS, alter=during(change), labels=lambda _, n=n: {"namespace": n})
        for n, change in CHANGES.items()
    ]
    pods = {"namespace": "reborn"}
    servers.append(
        Server(
            "reborn:8000",
            WAITS,
            labels=lambda minute: {**pods, "pod": "a" if minute < FAULT_FROM else "b"},
        )
    )
    story, _ = tell(servers, pools=())
    assert story.until(FAULT_FROM) == [FIRING] * len(servers)
    during_fault = story.until(FAULT_UNTIL)
    ended = [p for p in story.inbox.pages if p["event"] == "resolved" and p["alert"] == "Queues"]
    # another pod is another server: the incident of the one before is closed, with the reason
    assert [p["servers"]["first"] for p in ended] in ([], [["reborn:8000"]]), during_fault
    story.until(END)
    pages = [p for p in story.inbox.pages if p["alert"] == "Queues"]
    for server in servers:
        if server.name != "reborn:8000":
            mine = [p for p in pages if p["servers"]["first"] == [server.name]]
            assert [(p["event"], p["alert"]) for p in mine] == [FIRING, RESOLVED], server.name
            assert len({p["incident"] for p in mine}) == 1
    assert "Queues" not in story.open_alerts()
