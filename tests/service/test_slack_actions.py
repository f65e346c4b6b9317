"""Clicks on Slack: over a real WebSocket into the store, and back onto the message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.loopback import Answer
from fakes.slack_workspace import APP_TOKEN, BOT_TOKEN, Posted, SlackWorkspace
from outbox import planned
from page_cases import AT, CAP

from driftwatch.clock import ManualClock
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.receivers.registry import Receiver, build_senders
from driftwatch.service.own_metrics import OwnMetrics
from driftwatch.service.slack_actions import SlackActions
from driftwatch.settings import ReceiverSettings
from driftwatch.store.store import Store, TickRecord
from tests.outbox import due_deliveries, mark_sent

CHANNEL = "C0000ONCALL"
ANA, BEN, EVE = "U0000ANA", "U0000BEN", "U0000EVE"
PAGE = CAP.page()
SECONDS = 10.0


@dataclass
class Desk:
    """A page that went to Slack, and a driftwatch that listens for clicks on it."""

    slack: SlackWorkspace
    store: Store
    clock: ManualClock
    actions: SlackActions
    metrics: OwnMetrics
    receivers: list[Receiver]

    @property
    def message(self) -> Posted:
        return self.slack.top(CHANNEL)[0]

    @property
    def line(self) -> str:
        return str(self.message.payload["text"])

    def click(self, action: str, user: str = ANA, at: datetime | None = None, **rest: Any) -> str:
        moment = (at or self.clock.now()).timestamp()
        return self.slack.click(self.message, action, user, moment, **rest)

    def sample(self, name: str, **labels: str) -> float:
        value = self.metrics.registry.get_sample_value(f"driftwatch_{name}", labels)
        return 0.0 if value is None else value

    def clicks(self, result: str) -> float:
        return self.sample("slack_clicks_total", receiver="oncall", result=result)

    @property
    def answers(self) -> list[str]:
        return [one["text"] for one in self.slack.answers]

    @property
    def taker(self) -> str | None:
        return self.store.incident(CAP.incident.id).acknowledged_by


def until(condition: Callable[[], Any]) -> None:
    """Wait for it; it must come."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def settings_of(slack: SlackWorkspace, folder: Path, **rest: Any) -> ReceiverSettings:
    tokens = {"bot": BOT_TOKEN, "app": APP_TOKEN}
    for name, token in tokens.items():
        (folder / f"{name}.token").write_text(token)
    app = {f"{name}_token_file": folder / f"{name}.token" for name in tokens}
    app |= {"channel": CHANNEL, "api_url": slack.api_url, **rest}
    return ReceiverSettings.model_validate({"name": "oncall", "slack": app})


def receivers_of(settings: ReceiverSettings) -> list[Receiver]:
    sender = build_senders([settings])["oncall"]
    return [Receiver("oncall", ("page",), sender, slack=settings.slack)]


def firing() -> Incident:
    return replace(CAP.incident, page=PAGE)


def commit(store: Store, incident: Incident) -> None:
    """The incident fires, and its page is planned."""
    page = planned(incident.id, PAGE, AT)
    store.commit_tick(
        TickRecord(
            since=AT,
            until=AT,
            incidents=[incident],
            transitions=[Transition(incident, "firing", AT)],
            deliveries=[page],
        )
    )


def resolve(store: Store) -> None:
    ended = replace(firing(), state="resolved", resolved_at=AT, page=CAP.resolved())
    record = TickRecord(since=AT, until=AT, transitions=[Transition(ended, "resolved", AT)])
    store.commit_tick(record)


@pytest.fixture
def slack() -> Iterator[SlackWorkspace]:
    people = {ANA: "Ana", BEN: "Ben", EVE: "Eve"}
    with SlackWorkspace({CHANNEL: (ANA, BEN)}, people) as server:
        yield server


@pytest.fixture
def made(slack: SlackWorkspace, tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    opened: list[Any] = []

    def make(**rest: Any) -> Desk:
        clock = ManualClock(AT + timedelta(minutes=5))
        store = Store.open(tmp_path / "driftwatch.db")
        commit(store, firing())
        receivers = receivers_of(settings_of(slack, tmp_path, **rest))
        (delivery,) = due_deliveries(store, AT)
        from driftwatch.receivers.sender import message_of

        conversation = receivers[0].sender.send(message_of(PAGE))
        mark_sent(store, delivery, AT, conversation)
        metrics = OwnMetrics(clock.now)
        actions = SlackActions(store, clock.now, metrics)
        opened.extend((actions.stop, store.close))
        actions.start(receivers)
        until(lambda: metrics.registry.get_sample_value(
            "driftwatch_slack_connected", {"receiver": "oncall"}
        ) and slack.socket.open)  # fmt: skip
        return Desk(slack, store, clock, actions, metrics, receivers)

    yield make
    for end in opened:
        end()


@pytest.fixture
def desk(made: Callable[..., Desk]) -> Desk:
    return made()


def test_a_click_takes_the_incident_and_who_it_was_is_kept(desk: Desk) -> None:
    assert desk.line.startswith("🔴 FIRING host:8000: ")
    envelope = desk.click("acknowledge")
    until(lambda: desk.taker == "Ana")
    assert desk.slack.socket.acknowledged == [envelope]
    (action,) = desk.store.actions(CAP.incident.id)
    assert (action.via, action.by, action.action) == ("oncall", "Ana", "acknowledge")
    until(lambda: desk.clicks("done") == 1)
    assert desk.answers == []


def test_the_same_click_after_a_restart_is_done_once(desk: Desk) -> None:
    at = desk.clock.now()
    action = {"type": "button", "action_id": "acknowledge", "value": CAP.incident.id}
    actions = [{**action, "action_ts": f"{at.timestamp():.6f}"}]
    desk.click("acknowledge", actions=actions)
    until(lambda: desk.clicks("done") == 1)
    desk.actions.stop()
    desk.store.unacknowledge(CAP.incident.id, "Ana", at)
    desk.actions.start(desk.receivers)
    until(lambda: desk.slack.socket.connections == 2)
    desk.click("acknowledge", actions=actions)
    until(lambda: desk.clicks("again") == 1)
    assert desk.taker is None
    assert len(desk.store.actions(CAP.incident.id)) == 2


def test_of_two_people_the_first_one_has_it(desk: Desk) -> None:
    desk.click("acknowledge", ANA)
    desk.click("acknowledge", BEN)
    until(lambda: desk.answers)
    assert desk.answers == ["Ana acknowledged it at 03:01 UTC"]
    assert desk.taker == "Ana"


@pytest.mark.parametrize(("user", "may"), [(EVE, True), (ANA, False)])
def test_who_may_click_is_in_the_settings(made: Callable[..., Desk], user: str, may: bool) -> None:
    desk = made(users=[EVE])
    desk.click("acknowledge", user)
    until(lambda: desk.clicks("done") if may else desk.answers)
    assert desk.clicks("done" if may else "refused")
    assert (desk.taker is not None) is may
    assert desk.answers == ([] if may else ["you are not among those who may use these buttons"])


def test_a_stale_click_is_refused(desk: Desk) -> None:
    for number, minutes in enumerate((-6, 6), 1):
        desk.click("acknowledge", at=desk.clock.now() - timedelta(minutes=minutes))
        until(lambda number=number: len(desk.answers) == number)
    assert set(desk.answers) == {"this click is older than 5 minutes: click again"}
    assert desk.taker is None


def test_a_resolved_incident_cannot_be_taken_but_marked(desk: Desk) -> None:
    resolve(desk.store)
    desk.click("acknowledge")
    until(lambda: desk.answers)
    assert desk.answers == [
        "incident 3f9c1a7be204 is already resolved: there is nothing to acknowledge"
    ]
    where = desk.store.conversation(desk.store.deliveries(CAP.incident.id)[0])
    from driftwatch.receivers.sender import Message

    over = Message("incident", CAP.incident.id, "resolved", 0, CAP.resolved(), where)
    desk.receivers[0].sender.send(over)
    desk.click("not_useful")
    until(lambda: len(desk.answers) == 2)
    assert desk.answers[1].startswith("marked not useful; driftwatch ack 3f9c1a7be204 --useful")
    assert desk.store.marks([CAP.incident.id])[CAP.incident.id].by == "Ana"
    (kept,) = desk.store.actions(CAP.incident.id)
    assert (kept.action, kept.subject, kept.by, kept.via) == (
        *("mark", "not useful", "Ana"),
        desk.receivers[0].name,
    )


def test_two_hours_of_silence_stand_in_the_thread(desk: Desk) -> None:
    at = desk.clock.now()
    desk.click("silence_2h", at=at)
    until(lambda: desk.slack.thread(desk.message))
    (silence,) = desk.store.silences(at)
    assert silence.until == at + timedelta(hours=2)
    (kept,) = desk.store.actions(CAP.incident.id)
    assert (kept.action, kept.subject, kept.by) == ("silence", silence.id, "Ana")
    assert [one.text for one in silence.matchers] == [
        "alert=BatchLimitBinding", "instance=host:8000", "engine=0",
    ]  # fmt: skip
    (note,) = desk.slack.thread(desk.message)
    assert note.payload["text"] == (
        "*Silenced* by Ana until 05:01 UTC: alert=BatchLimitBinding instance=host:8000 engine=0"
    )


def test_a_database_that_is_locked_is_an_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from driftwatch.errors import StoreError

    def locked(*_: Any, **__: Any) -> None:
        raise StoreError("the database is locked", code="locked")

    monkeypatch.setattr(Store, "acknowledge", locked)
    desk.click("acknowledge")
    until(lambda: desk.answers)
    assert desk.answers == [
        "driftwatch could not do it (the database is locked); the commands work"
    ]
    assert desk.clicks("failed") == 1


def test_slack_ends_the_connection_and_driftwatch_opens_another(desk: Desk) -> None:
    for number, reason in enumerate(("refresh_requested", "too_many_websockets"), start=2):
        desk.slack.socket.disconnect(reason)
        until(lambda number=number: desk.slack.socket.connections == number)
    desk.click("acknowledge")
    until(lambda: desk.taker)


def test_a_click_with_an_id_of_nobody(desk: Desk) -> None:
    values = ("ffffffffffff", "'; drop table incidents", "<!channel>", "")
    for number, value in enumerate(values):
        action = {"type": "button", "action_id": "acknowledge", "value": value}
        stamp = f"{desk.clock.now().timestamp() + number:.6f}"
        desk.click("acknowledge", actions=[{**action, "action_ts": stamp}])
    until(lambda: len(desk.answers) == len(values))
    assert desk.taker is None
    assert not any("<!" in answer for answer in desk.answers)


def test_clicks_that_wait_while_the_service_stops_are_done(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slack was told that they arrived: it sends them no second time."""
    held, go_on = threading.Event(), threading.Event()
    add_silence = desk.store.add_silence

    def held_silence(*args: Any, **rest: Any) -> Any:
        held.set()
        assert go_on.wait(SECONDS)
        return add_silence(*args, **rest)

    monkeypatch.setattr(desk.store, "add_silence", held_silence)
    desk.click("silence_2h", BEN)
    assert held.wait(SECONDS)
    envelope = desk.click("acknowledge")
    until(lambda: envelope in desk.slack.socket.acknowledged)
    stopping = threading.Thread(target=desk.actions.stop)
    stopping.start()
    until(lambda: not desk.slack.socket.open)
    assert desk.taker is None
    go_on.set()
    stopping.join(SECONDS)
    assert not stopping.is_alive()
    assert desk.taker == "Ana"
    assert desk.clicks("done") == 2


def test_a_reload_connects_anew_only_where_the_app_is_another(desk: Desk, tmp_path: Path) -> None:
    desk.actions.adopt(desk.receivers)
    assert desk.slack.socket.connections == 1
    desk.actions.adopt(receivers_of(settings_of(desk.slack, tmp_path, users=[EVE])))
    until(lambda: desk.slack.socket.connections == 2)
    desk.actions.adopt([])
    assert desk.sample("slack_connected", receiver="oncall") == 0
    until(lambda: not desk.slack.socket.open)


def test_no_secret_is_logged(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    desk.click("acknowledge")
    desk.click("acknowledge", EVE)
    until(lambda: desk.answers)
    desk.slack.fail_call("apps.connections.open", "link_disabled")
    desk.slack.socket.disconnect("link_disabled")
    until(lambda: desk.sample("slack_connected", receiver="oncall") == 0)
    out = "".join(capfd.readouterr())
    assert "click done" in out
    assert "canary" not in out


def test_an_app_token_that_is_refused_is_said_once_and_tried_again(
    made: Callable[..., Desk], slack: SlackWorkspace
) -> None:
    from collections import deque

    refused = Answer(200, '{"ok": false, "error": "invalid_auth"}')
    slack.failing["apps.connections.open"] = deque([refused])
    desk = made()
    assert slack.calls.count("apps.connections.open") == 2
    assert desk.sample("slack_connected", receiver="oncall") == 1
