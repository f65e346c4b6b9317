"""Clicks on Slack: what each does, and the real WebSocket that brings them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.manual_clock import ManualClock
from fakes.slack_workspace import APP_TOKEN, BOT_TOKEN, Posted, SlackWorkspace
from made_incidents import with_values
from outbox import planned
from page_cases import AT, CAP
from secret_file import secret

from driftwatch.incidents.incident import Transition
from driftwatch.numbers import moment
from driftwatch.receivers.registry import Receiver, build_senders
from driftwatch.receivers.sender import message_of
from driftwatch.service.metrics import OwnMetrics
from driftwatch.service.slack_actions import SlackActions, SlackClicks, apps_of
from driftwatch.settings import ReceiverSettings
from driftwatch.store.store import Store, TickRecord
from tests.outbox import due_deliveries, mark_sent

CHANNEL, ID = "C0000ONCALL", CAP.incident.id
ANA, BEN, EVE = "U0000ANA", "U0000BEN", "U0000EVE"
SECONDS = 10.0


@dataclass
class Desk:
    """A page that went to Slack, and a driftwatch that takes clicks on it."""

    slack: SlackWorkspace
    store: Store
    clock: ManualClock
    metrics: OwnMetrics
    receivers: list[Receiver]

    @property
    def message(self) -> Posted:
        return self.slack.top(CHANNEL)[0]

    def payload(self, action: str, user: str = ANA, at: datetime | None = None, **rest: Any) -> Any:
        moment = (at or self.clock.now()).timestamp()
        return self.slack.payload(self.message, action, user, moment, **rest)

    def click(self, action: str, user: str = ANA, at: datetime | None = None, **rest: Any) -> None:
        """A click that has come."""
        self.handle(self.payload(action, user, at, **rest))

    def handle(self, payload: Any) -> None:
        (app,) = apps_of(self.receivers)
        SlackClicks(app, self.store, self.clock.now).handle(payload)

    def resolve(self) -> None:
        ended = with_values(CAP.incident, resolved_at=AT, page=CAP.resolved())
        happened = [Transition(ended, "resolved", AT)]
        self.store.commit_tick(TickRecord(until=AT, transitions=happened))
        where = self.store.conversation(self.store.deliveries(ID)[0])
        self.receivers[0].sender.send(replace(message_of(CAP.resolved()), conversation=where))

    @property
    def connected(self) -> float | None:
        labels = {"receiver": "oncall"}
        return self.metrics.registry.get_sample_value("driftwatch_slack_connected", labels)

    @property
    def answers(self) -> list[str]:
        return [one["text"] for one in self.slack.answers]

    @property
    def by(self) -> str | None:
        """Who acknowledged the incident."""
        return self.store.incident(ID).acknowledged_by


def until(condition: Callable[[], Any]) -> None:
    """Wait for it; it must come."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def receivers_of(slack: SlackWorkspace, **rest: Any) -> list[Receiver]:
    app = {"bot_token_file": secret(BOT_TOKEN), "app_token_file": secret(APP_TOKEN)}
    app |= {"channel": CHANNEL, "api_url": slack.api_url, **rest}
    settings = ReceiverSettings.model_validate({"name": "oncall", "slack": app})
    sender = build_senders([settings])["oncall"]
    return [Receiver("oncall", ("page",), sender, slack=settings.slack)]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    names = {ANA: "Ana", BEN: "Ben", EVE: "Eve"}
    with (
        SlackWorkspace({CHANNEL: (ANA, BEN)}, names) as slack,
        Store.open(tmp_path / "d.db") as store,
    ):
        page, fired = CAP.page(), with_values(CAP.incident, page=CAP.page())
        happened = [Transition(fired, "firing", AT)]
        store.commit_tick(TickRecord(AT, [fired], happened, deliveries=[planned(ID, page, AT)]))
        receivers, clock = receivers_of(slack), ManualClock(AT + timedelta(minutes=5))
        (delivery,) = due_deliveries(store, AT)
        mark_sent(store, delivery, AT, receivers[0].sender.send(message_of(page)))
        yield Desk(slack, store, clock, OwnMetrics(clock.now), receivers)


@pytest.fixture
def actions(desk: Desk) -> Iterator[SlackActions]:
    """Connected to Slack."""
    listening = SlackActions(desk.store, desk.clock.now, desk.metrics)
    listening.start(desk.receivers)
    until(lambda: desk.connected and desk.slack.socket.open)
    yield listening
    listening.stop()


def test_a_click_acknowledges_and_who_it_was_is_kept(desk: Desk) -> None:
    click = desk.payload("acknowledge")
    desk.handle(click)
    assert desk.by == "Ana"
    (action,) = desk.store.actions(ID)
    assert (action.via, action.by, action.action) == ("oncall", "Ana", "acknowledge")
    # the same click is done once, whatever happened meanwhile
    desk.store.unacknowledge(ID, "Ana", desk.clock.now())
    desk.handle(click)
    assert desk.by is None
    assert desk.answers == []


def test_of_two_people_the_first_one_has_it(desk: Desk) -> None:
    desk.click("acknowledge", ANA)
    desk.click("acknowledge", BEN)
    assert desk.answers == ["Ana acknowledged it at 03:01 UTC"]
    assert desk.by == "Ana"


def test_who_may_not_click_and_what_is_stale_is_refused(desk: Desk) -> None:
    for minutes in (-6, 6):
        desk.click("acknowledge", at=desk.clock.now() + timedelta(minutes=minutes))
    assert desk.answers == ["this click is older than 5 minutes: click again"] * 2
    desk.receivers = receivers_of(desk.slack, users=[EVE])
    desk.click("acknowledge", ANA)
    assert desk.answers[2:] == ["you are not among those who may use these buttons"]
    assert desk.by is None
    desk.click("acknowledge", EVE)
    assert desk.by == "Eve"


def test_what_is_resolved_can_be_marked_and_nothing_else(desk: Desk) -> None:
    late = [desk.payload("acknowledge"), desk.payload("silence_2h")]
    desk.resolve()
    for one in late:
        desk.handle(one)
    desk.click("not_useful")
    over = moment(AT, None)
    assert desk.answers == [
        f"incident {ID} resolved {over}: it cannot be acknowledged any more",
        f"incident {ID} resolved {over}: it cannot be silenced any more",
        f"marked not useful; driftwatch ack {ID} --useful or --not-useful marks it anew",
    ]
    assert desk.store.marks([ID])[ID].by == "Ana"
    (kept,) = desk.store.actions(ID)
    assert (kept.action, kept.subject, kept.via) == ("mark", "not useful", "oncall")


def test_two_hours_of_silence_stand_in_the_thread(desk: Desk) -> None:
    at = desk.clock.now()
    desk.click("silence_2h", at=at)
    (silence,) = desk.store.silences(at)
    assert silence.until == at + timedelta(hours=2)
    (kept,) = desk.store.actions(ID)
    assert (kept.action, kept.subject, kept.by) == ("silence", silence.id, "Ana")
    matchers = " ".join(one.text for one in silence.matchers)
    assert matchers.startswith("alert=BatchLimitBinding ")
    (note,) = desk.slack.thread(desk.message)
    assert note.payload["text"] == f"*Silenced* by Ana until 05:01 UTC: {matchers}"


def test_clicks_with_an_id_of_nobody_and_payloads_that_are_none(desk: Desk) -> None:
    for number, value in enumerate(("ffffffffffff", "'; drop table incidents", "<!channel>", "")):
        stamp = f"{desk.clock.now().timestamp() + number:.6f}"
        action = {"type": "button", "action_id": "acknowledge", "value": value}
        desk.click("acknowledge", actions=[{**action, "action_ts": stamp}])
    for odd in ({}, {"type": "block_actions"}, {"actions": [None], "container": 1, "user": []}):
        desk.handle(odd)
    assert desk.by is None
    assert len(desk.answers) == 4
    assert not any("<!" in answer for answer in desk.answers)


def test_clicks_come_over_a_connection_that_is_reopened(
    desk: Desk, actions: SlackActions, capfd: pytest.CaptureFixture[str]
) -> None:
    for number, reason in enumerate(("refresh_requested", "too_many_websockets"), start=2):
        desk.slack.socket.disconnect(reason)
        until(lambda number=number: desk.slack.socket.connections == number)
    envelope = desk.slack.socket.push("interactive", desk.payload("acknowledge"))
    until(lambda: desk.by)
    assert desk.slack.socket.acknowledged == [envelope]
    desk.slack.fail_call("apps.connections.open", "link_disabled")
    desk.slack.socket.disconnect("link_disabled")
    until(lambda: desk.connected == 0)
    out = "".join(capfd.readouterr())
    assert "click done" in out
    assert "canary" not in out
