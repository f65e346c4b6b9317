"""Texts of the outside that a database cannot hold stop nobody's queue."""

from __future__ import annotations

from datetime import timedelta

import pytest
from outbox_cases import NOW, Desk, commit, outbox_of, planned

from driftwatch.clock import ManualClock
from driftwatch.receivers.sender import Conversation, Message
from driftwatch.store import Store


@pytest.mark.parametrize("text", ["a\x00b", "a\udcffb", "line\nline \U0001f525"])
def test_an_error_that_no_database_can_hold_stops_no_queue(database: str, text: str) -> None:
    def answer(message: Message) -> None:
        if message.payload["rule"] == "Rule1":
            raise ValueError(text)

    clock = ManualClock(NOW)
    with Store.open(database) as store:
        desk, other = Desk(answer), Desk()
        outbox, _ = outbox_of(store, clock, desk=desk, other=other)
        commit(store, planned(1), planned(2), planned(2, receiver="other"))
        attempts = outbox.deliver_once()
        assert sorted((a.receiver, a.rule, a.result) for a in attempts) == [
            ("desk", "Rule1", "retried"),
            ("desk", "Rule2", "sent"),
            ("other", "Rule2", "sent"),
        ]
        clock.advance(timedelta(hours=1))
        assert [a.result for a in outbox.deliver_once()] == ["retried"]


def test_names_that_no_database_can_hold_are_left_out(database: str) -> None:
    """The receiver took the page: it is marked as sent, and its queue goes on."""

    class Naming(Desk):
        def send(self, message: Message) -> Conversation | None:
            super().send(message)
            return {"name": "\udcff"}

    desk = Naming()
    with Store.open(database) as store:
        outbox, _ = outbox_of(store, ManualClock(NOW), desk=desk)
        commit(store, planned(1), planned(2))
        assert [one.result for one in outbox.deliver_once()] == ["sent", "sent"]
        assert [one.payload["rule"] for one in desk.messages] == ["Rule1", "Rule2"]
        assert outbox.deliver_once() == []
