"""From the configuration to senders, and ``driftwatch doctor --send-test``."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import outbox
import pytest
from click.testing import CliRunner
from fakes.pagerduty_server import ROUTING_KEY, PagerdutyServer
from fakes.slack_server import SlackServer
from fakes.webhook_server import WebhookServer
from page_cases import AT, CAP

from driftwatch.cli.main import cli
from driftwatch.errors import ConfigError, DeliveryError
from driftwatch.notify.page import Page
from driftwatch.receivers.registry import Receiver, build_senders, without_ignored
from driftwatch.receivers.sender import message_of
from driftwatch.receivers.stdout import StdoutSender
from driftwatch.settings import load_settings

SCHEMA = Page.model_json_schema()


@pytest.fixture
def slack() -> Iterator[SlackServer]:
    with SlackServer() as server:
        yield server


@pytest.fixture
def hook() -> Iterator[WebhookServer]:
    with WebhookServer(SCHEMA, b"key") as server:
        yield server


@pytest.fixture
def config(tmp_path: Path, slack: SlackServer, hook: WebhookServer) -> Path:
    (tmp_path / "slack.url").write_text(slack.url + "\n")
    (tmp_path / "hook.url").write_text(hook.url + "\n")
    (tmp_path / "hook.key").write_text("key\n")
    file = tmp_path / "driftwatch.yaml"
    file.write_text(
        "receivers:\n"
        "  - name: oncall\n    slack: {webhook_url_file: slack.url}\n"
        "  - name: ops\n    webhook: {url_file: hook.url, secret_file: hook.key}\n"
        "  - name: log\n    stdout: {}\n"
    )
    return file


def test_a_sender_for_each_receiver(
    config: Path, slack: SlackServer, hook: WebhookServer, capsys: pytest.CaptureFixture[str]
) -> None:
    senders = build_senders(load_settings(config).receivers)
    assert list(senders) == ["oncall", "ops", "log"]
    for one in senders.values():
        one.send(message_of(CAP.page()))
    assert len(slack.accepted) == 1
    assert hook.accepted == [CAP.page().document()]
    assert json.loads(capsys.readouterr().out) == CAP.page().document()
    assert "canary" not in repr(senders)


def test_a_changed_secret_counts_at_once(config: Path, slack: SlackServer) -> None:
    sender = build_senders(load_settings(config).receivers)["oncall"]
    (config.parent / "slack.url").write_text(slack.url + "x")
    with pytest.raises(DeliveryError, match="invalid_token"):
        sender.send(message_of(CAP.page()))
    (config.parent / "slack.url").unlink()
    with pytest.raises(ConfigError, match="no such file"):
        sender.send(message_of(CAP.page()))
    (config.parent / "slack.url").write_text(slack.url)
    sender.send(message_of(CAP.page()))
    assert len(slack.accepted) == 1


@pytest.mark.parametrize(
    ("form", "ignored"),
    [
        ("alertmanager", {("firing", 1), ("verified", 0), ("report", 0)}),
        ("pagerduty", {("verified", 0), ("report", 0)}),
        ("slack, app", set()),
    ],
)
def test_what_a_form_ignores_is_not_planned(form: str, ignored: set[tuple[str, int]]) -> None:
    events = [("firing", 0), ("firing", 1), ("updated", 0), ("resolved", 0), ("verified", 0)]
    receiver = Receiver("one", ("page",), StdoutSender(), form=form)
    planned = [
        outbox.planned("3f9c1a7be204", {}, AT, "one", event).model_copy(update={"number": number})
        for event, number in events
    ]
    kept = without_ignored(planned, [receiver])
    assert {(one.event, one.number) for one in planned if one not in kept} == ignored - {
        ("report", 0)
    }


def run(*words: Any) -> Any:
    return CliRunner().invoke(
        cli, ["doctor", "--send-test", *map(str, words)], standalone_mode=False
    )


def test_a_test_page_is_delivered(config: Path, slack: SlackServer, hook: WebhookServer) -> None:
    done = run("oncall", "-c", config)
    assert (done.return_value, done.output) == (0, "delivered: oncall took the test page\n")
    assert slack.accepted[0].payload["text"].startswith("TEST driftwatch: a test page for oncall;")
    assert run("ops", "-c", config).return_value == 0
    assert hook.accepted[0]["test"] is True


def test_a_refusal_is_told_with_its_reason(config: Path, slack: SlackServer) -> None:
    slack.fail_next(404, "no_service")
    done = run("oncall", "-c", config)
    assert done.return_value == 1
    assert done.stdout == ""
    assert done.stderr == "REFUSED oncall answered 404: no_service (trying again will not help)\n"
    slack.fail_next(429, "rate_limited", Retry_After="30")
    again = run("oncall", "-c", config)
    assert again.stderr.endswith("(trying again may help, after 30 s)\n")


@pytest.mark.parametrize("resolve", [False, True])
def test_pagerduty_keeps_a_test_page_without_its_resolve(tmp_path: Path, resolve: bool) -> None:
    with PagerdutyServer() as server:
        (tmp_path / "key").write_text(ROUTING_KEY)
        key = {"routing_key_file": "key", "url": server.address}
        file = tmp_path / "driftwatch.yaml"
        file.write_text(json.dumps({"receivers": [{"name": "one", "pagerduty": key}]}))
        done = run("one", "-c", file, *["--resolve"] * resolve)
        assert (done.return_value, len(server.requests)) == (0, 1 + resolve)
    end = " and its resolve" if resolve else "; PagerDuty keeps it open: --resolve ends it"
    assert done.stdout == f"delivered: one took the test page{end}\n"


def test_the_terminal_form_has_no_colour_without_a_terminal() -> None:
    stream = io.StringIO()
    StdoutSender("log", stream=stream).send(message_of(CAP.page()))
    assert stream.getvalue().startswith("FIRING host:8000: ")
    assert stream.getvalue().endswith("\n\n")
    assert "\x1b" not in stream.getvalue()
