"""Clocks that jump while an incident is open: no minute is judged twice, nothing waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from open_incident_cases import FIRING, RESOLVED, Server, Story, Tell, stories
from structlog.testing import capture_logs

# requests wait from minute 1 to 6
ONE = [Server("chat-0:8000", (1, 6))]


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Tell]:
    with stories(tmp_path) as tell:
        yield tell


def bodies(story: Story) -> list[bytes]:
    return [request.body for request in story.inbox.requests]


def test_back_by_90_seconds(tell: Tell, database: str, tmp_path: Path) -> None:
    """In the middle of a minute of which a part is collected: over a restart, then without one."""
    undisturbed, _ = tell(ONE, str(tmp_path / "undisturbed.db"))
    assert undisturbed.until(8, every=0.5) == [FIRING, RESOLVED]
    story, _ = tell(ONE, database)
    story.until(2.5, every=0.5)
    story.restart()
    story.tick(1.0)
    story.until(4.5, every=0.5)
    story.tick(3.0)
    story.until(8, every=0.5)
    assert bodies(story) == bodies(undisturbed)


def test_back_by_an_hour_and_then_it_is_waited_for(tell: Tell) -> None:
    story, _ = tell(ONE)
    story.inbox.fail_next(503, Retry_After="300")
    assert story.until(4) == [FIRING]  # refused
    with capture_logs() as log:
        story.ahead = -60.0
        assert story.until(5) == [FIRING]  # due at once: not in an hour
    assert [(one["event"], one["seconds"]) for one in log if "clock" in one["event"]] == [
        ("the clock went back", 3540)
    ]
    assert story.service.why_not_ready() == "the clock went back: the next minute is in 3540 s"
    assert story.until(12) == []
    assert story.open_alerts() == ["Queues"]
    story.ahead = 0.0
    assert story.until(13) == [RESOLVED]
    assert story.service.why_not_ready() is None


def test_forward_by_five_minutes_and_back(tell: Tell) -> None:
    """Prometheus has nothing of the future: no data, which is no health."""
    story, _ = tell([Server("chat-0:8000", (1, 14))])
    assert story.until(4) == [FIRING]
    story.ahead = 5.0
    assert story.until(7) == []
    assert story.open_alerts() == ["Queues"]
    story.ahead = 0.0
    assert story.until(14) == []
    assert story.until(16) == [RESOLVED]


def test_two_hours_asleep(tell: Tell) -> None:
    """What happened meanwhile is read and told of; the incident is the same."""
    story, _ = tell([Server("chat-0:8000", (1, 60))], minutes=140)
    assert story.until(4) == [FIRING]
    story.tick(124)
    story.until(126)
    assert story.open_alerts() == []
    events = [(page["event"], page["alert"]) for page in story.inbox.pages]
    assert events == [FIRING, RESOLVED]
    assert len({page["incident"] for page in story.inbox.pages}) == 1
