"""A Prometheus that fails while an incident is open: it stays open, and the loss is told of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.loopback import Answer
from open_incident_cases import (
    BACK,
    END,
    FAULT_FROM,
    FAULT_UNTIL,
    FIRING,
    LOST,
    RESOLVED,
    Tell,
    fleet,
    stories,
)

HUGE = '{"status":"success","data":"' + 30 * 2**20 * "x" + '"}'

ANSWERS = {
    "500": Answer(500, "<h1>Internal Server Error</h1>"),
    "HTML 200": Answer(200, "<html><title>Sign in</title></html>"),
    "truncated JSON": Answer(
        200, '{"status":"success","data":{"resultType":"matrix","result":[{"m'
    ),
    "redirect": Answer(302, "", {"Location": "http://elsewhere.invalid/"}),
    "30 MB body": Answer(200, HUGE),
}


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Tell]:
    with stories(tmp_path) as tell:
        yield tell


def test_whatever_it_answers_the_incident_stays_open(tell: Tell) -> None:
    """One fault a minute; then what was missed is read, while requests of one server still wait."""
    story, api = tell(fleet())
    assert story.until(FAULT_FROM) == [FIRING]
    api.stop()
    assert story.until(FAULT_FROM + 1) == []
    api.start()
    for answer in (*ANSWERS.values(), *ANSWERS.values()):
        api.faults = [("", answer)]
        assert story.until(story.minute + 1) in ([], [LOST])
        assert "Queues" in story.open_alerts()
    assert story.minute == FAULT_UNTIL
    assert story.open_alerts() == ["CoverageLost", "Queues"]
    api.faults = []
    assert story.until(FAULT_UNTIL + 3) == [BACK]
    assert story.until(END) == [RESOLVED]
    keys = [request.headers["idempotency-key"] for request in story.inbox.requests]
    assert len(keys) == len(set(keys)) == 4


@pytest.mark.slow
def test_one_that_hangs_or_drips(tell: Tell) -> None:
    """The tick goes on without it."""
    story, api = tell(fleet())
    assert story.until(FAULT_FROM) == [FIRING]
    story.service._interval_seconds = 0.1
    asker = story.sources[0]._asker  # type: ignore[attr-defined]
    usual = asker._session._bounds
    asker._session._bounds = replace(usual, read_seconds=0.3, total_seconds=0.3)
    api.drip = "headers"
    assert story.until(FAULT_FROM + 2) == []
    api.drip = "body"
    assert story.until(FAULT_FROM + 4) == []
    api.drip = ""
    api.faults = [("", Answer(0, hang=True))]
    assert story.until(FAULT_UNTIL, every=3.0) == [LOST]
    assert story.open_alerts() == ["CoverageLost", "Queues"]
    api.faults = []
    asker._session._bounds = usual
    assert story.until(FAULT_UNTIL + 3) == [BACK]
    assert story.until(END) == [RESOLVED]
