"""The Slack part of a receiver: a webhook or an app, and what is said of anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from driftwatch.errors import ConfigError
from driftwatch.settings import load_settings


def problems(folder: Path, slack: str) -> list[str]:
    file = folder / "driftwatch.yaml"
    file.write_text(f"receivers:\n  - name: oncall\n    slack: {slack}\n")
    try:
        load_settings(file)
    except ConfigError as error:
        return [f"{p.line}:{p.column} {p.message}" for p in error.problems]
    return []


@pytest.mark.parametrize(
    "slack",
    [
        "{webhook_url_file: url}",
        "{bot_token_file: bot, channel: C024BE91L}",
        "{bot_token_file: bot, app_token_file: app, channel: G024BE91L, users: [U024BE7LH]}",
        "{bot_token_file: bot, channel: C1A, api_url: 'https://slack-gov.com/api/'}",
    ],
)
def test_an_app_or_a_webhook(tmp_path: Path, slack: str) -> None:
    assert problems(tmp_path, slack) == []


@pytest.mark.parametrize(
    ("slack", "words"),
    [
        ("{}", "give exactly one of webhook_url, webhook_url_file, bot_token_file"),
        ("{webhook_url_file: url, bot_token_file: bot, channel: C1A}", "give exactly one of"),
        ("{bot_token_file: bot}", "bot_token_file needs channel, the ID of the channel"),
        ("{webhook_url_file: url, channel: C024BE91L}", "channel belongs to an app: give bot_"),
        ("{webhook_url_file: url, app_token_file: app}", "app_token_file belongs to an app"),
        ("{bot_token_file: bot, channel: '#oncall'}", "not the ID of a channel, such as C024BE91L"),
        ("{bot_token_file: bot, channel: oncall}", "not the ID of a channel"),
        ("{bot_token_file: bot, channel: C1A, users: [U1A]}", "give app_token_file too"),
        (
            "{bot_token_file: bot, app_token_file: app, channel: C1A, users: ['@ana']}",
            "not the ID of a person",
        ),
        (
            "{bot_token_file: bot, app_token_file: app, channel: C1A, user_groups: [U1A]}",
            "unknown key user_groups",
        ),
        ("{bot_token_file: bot, channel: C1A, api_url: 'ftp://slack.com/'}", "only http://"),
        ("{bot_token: xoxb-canary, channel: C1A}", "bot_token"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(tmp_path: Path, slack: str, words: str) -> None:
    reasons = problems(tmp_path, slack)
    assert any(words in reason and reason.startswith("3:") for reason in reasons), reasons
    assert "xoxb-canary" not in "".join(reasons)
