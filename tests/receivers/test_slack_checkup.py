"""What a Slack app lacks; its manifest; and the workspace against Slack's own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.slack_workspace import APP_TOKEN, BOT_TOKEN, SlackWorkspace
from slack_cases import CHANNEL, workspace

from driftwatch.receivers.registry import shortcomings_of
from driftwatch.settings import ReceiverSettings

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def slack() -> Iterator[SlackWorkspace]:
    with workspace() as server:
        yield server


@pytest.fixture
def lacking(slack: SlackWorkspace, tmp_path: Path) -> Any:
    (tmp_path / "bot").write_text(BOT_TOKEN)
    (tmp_path / "app").write_text(APP_TOKEN)

    def ask(**rest: Any) -> list[str]:
        app = {"bot_token_file": tmp_path / "bot", "channel": CHANNEL, "api_url": slack.api_url}
        app |= {"app_token_file": tmp_path / "app", **rest}
        given = {name: value for name, value in app.items() if value is not None}
        return shortcomings_of(ReceiverSettings.model_validate({"name": "oncall", "slack": given}))

    return ask


def test_an_app_of_the_manifest_lacks_nothing(slack: SlackWorkspace, lacking: Any) -> None:
    manifest = yaml.safe_load((ROOT / "deploy/slack/manifest.yaml").read_text(encoding="utf-8"))
    slack.scopes = set(manifest["oauth_config"]["scopes"]["bot"])
    assert lacking() == []
    assert manifest["settings"]["socket_mode_enabled"] is True
    assert manifest["settings"]["interactivity"]["is_enabled"] is True
    # driftwatch has no refresh token
    assert manifest["settings"]["token_rotation_enabled"] is False


def test_each_missing_scope_says_what_does_not_work(slack: SlackWorkspace, lacking: Any) -> None:
    slack.scopes = set()
    assert lacking() == [
        "scope chat:write is missing: no message can be posted",
        "scope users:read is missing: who clicks is named by the user name",
    ]
    assert lacking(app_token_file=None)[1:] == [
        "no app_token_file: messages have commands in place of buttons"
    ]


def test_wrong_tokens(slack: SlackWorkspace, lacking: Any, tmp_path: Path) -> None:
    (tmp_path / "app").write_text(BOT_TOKEN)
    (reason,) = lacking()
    assert reason.startswith("the buttons do not work (invalid_auth): write an app-level token")
    (tmp_path / "bot").write_text("xoxb-canary-old")
    assert lacking() == [
        "oncall: Slack answered invalid_auth to auth.test; write a bot token (xoxb-) of an "
        "installed app to bot_token_file"
    ]
    (tmp_path / "bot").unlink()
    assert "cannot be read" in lacking()[0]
