"""What a Slack app lacks, asked of Slack itself: scopes and the app token."""

from __future__ import annotations

from collections.abc import Iterator

from driftwatch.errors import ConfigError, DeliveryError
from driftwatch.receivers.slack_api import SlackApi, SlackRefusal
from driftwatch.settings.receivers.slack import SlackReceiver


def shortcomings(name: str, settings: SlackReceiver) -> list[str]:
    """Each thing that will not work, in words; empty where all does, and for a webhook."""
    if not settings.is_app:
        return []
    url = settings.api_url.rstrip("/") + "/"
    try:
        bot = SlackApi(name, settings.read("bot_token") or "", url)
        granted = bot.scopes()
        app_token = settings.read("app_token")
    except ConfigError as error:
        return [error.problems[0].message]
    except DeliveryError as error:
        return [error.message]
    lacking = list(_lacking(settings, granted))
    if app_token is not None:
        lacking += _of_buttons(SlackApi(name, app_token, url))
    return lacking


def _lacking(settings: SlackReceiver, scopes: frozenset[str]) -> Iterator[str]:
    if "chat:write" not in scopes:
        yield "scope chat:write is missing: no message can be posted"
    if settings.app_token_file is None:
        yield "no app_token_file: messages have commands in place of buttons"
        return
    if "users:read" not in scopes:
        yield "scope users:read is missing: who clicks is named by the user name"


def _of_buttons(app: SlackApi) -> Iterator[str]:
    """Whether clicks arrive."""
    try:
        app.ask("apps.connections.open")
    except DeliveryError as error:
        reason = error.code if isinstance(error, SlackRefusal) else error.message
        yield (
            f"the buttons do not work ({reason}): write an app-level token (xapp-) with the scope "
            "connections:write to app_token_file, and switch Socket Mode on"
        )
