"""What a Slack app lacks, asked of Slack itself: scopes, the channel, the app token."""

from __future__ import annotations

from collections.abc import Iterator

from driftwatch.errors import ConfigError, DeliveryError
from driftwatch.receivers.slack_api import SlackApi
from driftwatch.receivers.slack_errors import SlackRefusal
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
        lacking += _of_buttons(SlackApi(name, app_token, url), bot, settings)
    return lacking


def _lacking(settings: SlackReceiver, scopes: frozenset[str]) -> Iterator[str]:
    if "chat:write" not in scopes:
        yield "scope chat:write is missing: no message can be posted"
    if settings.app_token_file is None:
        yield "no app_token_file: messages have commands in place of buttons"
        return
    if settings.user_groups and "usergroups:read" not in scopes:
        yield "scope usergroups:read is missing: nobody of user_groups can click"
    if "users:read" not in scopes:
        yield "scope users:read is missing: who clicks is named by the user name"


def _of_buttons(app: SlackApi, bot: SlackApi, settings: SlackReceiver) -> Iterator[str]:
    """Whether clicks arrive, and whether driftwatch can check who clicks."""
    try:
        app.ask("apps.connections.open")
    except DeliveryError as error:
        reason = error.code if isinstance(error, SlackRefusal) else error.message
        yield (
            f"the buttons do not work ({reason}): write an app-level token (xapp-) with the scope "
            "connections:write to app_token_file, and switch Socket Mode on"
        )
    if settings.users or settings.user_groups:
        return
    try:
        bot.ask("conversations.members", channel=settings.channel or "", limit="1")
    except SlackRefusal as error:
        if error.code == "missing_scope":
            yield (
                "scope channels:read (groups:read for a private channel) is missing: nobody can "
                "click, unless users names them"
            )
        else:
            yield error.message
    except DeliveryError as error:
        yield error.message
