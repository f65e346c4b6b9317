"""Calls of Slack's Web API within every bound of the outside."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.loopback import Answer
from fakes.slack_workspace import BOT_TOKEN, SlackWorkspace
from page_cases import CAP
from slack_cases import CHANNEL, sender, told, workspace

from driftwatch.errors import DeliveryError
from driftwatch.receivers.slack import LIMITS, SlackApi

PACKAGE = Path(__file__).resolve().parents[2] / "driftwatch"


@pytest.fixture
def slack() -> Iterator[SlackWorkspace]:
    with workspace() as server:
        yield server


def refused(slack: SlackWorkspace) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        sender(slack, limits=replace(LIMITS, seconds=1.0)).send(told(CAP.page()))
    error = caught.value
    assert "canary" not in error.message + repr(error)
    assert error.__cause__ is None
    return error


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("https://files.slack.com/upload/v1/x", True),
        ("https://hooks.slack.com/actions/T/1/x", True),
        ("wss://wss-primary.slack.com/link/?ticket=1", True),
        ("https://slack.com/x", True),
        ("https://slack.com:443/x", True),
        ("http://files.slack.com/x", False),
        ("ws://wss-primary.slack.com/link", False),
        ("https://files.slack.com:8443/x", False),
        ("https://files.slack.com.evil.example/x", False),
        ("https://evilslack.com/x", False),
        ("https://user@slack.com/x", False),
        ("https://169.254.169.254/x", False),
        ("file:///etc/passwd", False),
        ("https://[::1/x", False),
        ("https://slack.com:99999/x", False),
        ("", False),
        ("None", False),
    ],
)
def test_only_slacks_own_addresses_are_asked(url: str, own: bool) -> None:
    assert SlackApi("oncall", "t", "https://slack.com/api/").is_slack(url) is own


def test_a_redirect_is_not_followed(slack: SlackWorkspace) -> None:
    with workspace() as other:
        slack.failing["chat.postMessage"] = deque(
            [Answer(302, "", {"Location": other.api_url + "chat.postMessage"})]
        )
        assert "redirects are not followed" in refused(slack).message
        assert other.requests == []


def test_an_answer_that_is_too_long_is_not_read_to_its_end(slack: SlackWorkspace) -> None:
    slack.failing["chat.postMessage"] = deque([Answer(200, "{" + "x" * (LIMITS.answer_bytes * 2))])
    assert refused(slack).permanent is False


def test_no_proxy_of_the_environment_sees_a_token(
    slack: SlackWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    sender(slack).send(told(CAP.page()))
    assert len(slack.top(CHANNEL)) == 1


def test_a_metadata_address_is_refused() -> None:
    api = SlackApi("oncall", BOT_TOKEN, "http://169.254.169.254/api/")
    with pytest.raises(DeliveryError, match="refused") as caught:
        api.ask("auth.test")
    assert caught.value.permanent is True
