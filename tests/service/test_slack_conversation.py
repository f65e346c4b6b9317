"""A recorded server's incident as Slack shows it: page, a click, every receiver told, resolved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fakes.slack_server import SlackServer
from fakes.slack_workspace import APP_TOKEN, BOT_TOKEN, SlackWorkspace
from reload_cases import BEGIN, recorded
from service_cases import shipped_plan

from driftwatch.clock import ManualClock
from driftwatch.receivers.registry import build_senders
from driftwatch.service.run import Receiver, Service
from driftwatch.service.slack_actions import SlackActions
from driftwatch.settings import ReceiverSettings
from driftwatch.store.store import Store

CHANNEL, ANA = "C0000ONCALL", "U0000ANA"


@pytest.fixture
def slack() -> Iterator[SlackWorkspace]:
    with SlackWorkspace({CHANNEL: (ANA,)}, {ANA: "Ana"}) as server:
        yield server


@pytest.fixture
def desk() -> Iterator[SlackServer]:
    with SlackServer() as server:
        yield server


def receivers_of(slack: SlackWorkspace, desk: SlackServer, folder: Path) -> list[Receiver]:
    (folder / "bot").write_text(BOT_TOKEN)
    (folder / "app").write_text(APP_TOKEN)
    app = {"bot_token_file": folder / "bot", "app_token_file": folder / "app"}
    app |= {"channel": CHANNEL, "api_url": slack.api_url}
    (folder / "url").write_text(desk.url)
    settings = [
        ReceiverSettings.model_validate({"name": "oncall", "slack": app}),
        ReceiverSettings.model_validate(
            {"name": "desk", "slack": {"webhook_url_file": folder / "url"}}
        ),
    ]
    senders = build_senders(settings)
    return [
        Receiver(one.name, ("page",), senders[one.name], form=one.form, slack=one.slack)
        for one in settings
    ]


def tick_to(service: Service, clock: ManualClock, minute: float) -> None:
    while clock.now() < BEGIN + timedelta(minutes=minute):
        clock.advance(timedelta(minutes=1))
        service.tick_once()
        service.deliver_once()


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_one_conversation_from_the_page_to_its_end(
    slack: SlackWorkspace,
    desk: SlackServer,
    shared_data: Path,
    tmp_path: Path,
    golden: Callable[[str, str], None],
) -> None:
    receivers = receivers_of(slack, desk, tmp_path)
    clock = ManualClock(BEGIN)
    with Store.open(tmp_path / "d.db") as store:
        service = Service([recorded(shared_data)], shipped_plan(), store, receivers, clock)
        actions = SlackActions(store, clock.now, service.metrics)
        actions.start(receivers)
        try:
            tick_to(service, clock, 13)
            (message,) = slack.top(CHANNEL)
            lines = [message.payload["text"]]
            slack.click(message, "acknowledge", ANA, clock.now().timestamp())
            until(service.plan_actions_once)
            service.deliver_once()
            lines.append(message.payload["text"])
            tick_to(service, clock, 29)
            lines.append(message.payload["text"])
        finally:
            actions.stop()
            service.stop()
    assert slack.top(CHANNEL) == [message]
    notes = [f"  thread: {one.payload['text']}" for one in slack.thread(message)]
    elsewhere = [f"desk: {one.payload['text']}" for one in desk.accepted]
    golden("receivers/slack_conversation.txt", "\n".join([*lines, *notes, *elsewhere]) + "\n")
    assert slack.mentions == []
