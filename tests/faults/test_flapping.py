"""A condition that is true every other minute: one incident, two messages."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from open_incident_cases import BEGIN, FIRING, RESOLVED, RULES, Row, Server, stories

QUIET_FROM = 13
HOLDS = "        for: 1m\n        keep_firing_for: 1m\n"


def flapping(minute: float, row: Row) -> Row:
    """Nine requests wait in odd minutes, four in even ones, none from some minute on."""
    waiting = 0.0 if minute >= QUIET_FROM else 9.0 if int(minute) % 2 else 4.0
    return {**row, "vllm:num_requests_waiting": waiting}


@pytest.mark.parametrize("held", ["keep_firing_for: 2m", "until: waiting_requests < 3"])
def test_what_flaps_each_minute_is_one_incident_and_two_messages(held: str, tmp_path: Path) -> None:
    assert HOLDS in RULES
    rules = RULES.replace(HOLDS, f"        {held}\n")
    with stories(tmp_path) as tell:
        story, _ = tell([Server("chat-0:8000", alter=flapping)], rules=rules)
        assert story.until(QUIET_FROM + 5) == [FIRING, RESOLVED]
        assert len(story.store.incidents()) == 1
        ended = datetime.fromisoformat(story.inbox.pages[1]["times"]["resolved_at"])
    assert ended >= BEGIN + timedelta(minutes=QUIET_FROM)
