"""What Slack's answers mean for a message: worth another try or not, and what helps. Pure.

Codes: the error tables of chat.postMessage, chat.update and conversations.members at
docs.slack.dev/reference/methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftwatch.errors import DeliveryError
from driftwatch.notify.numbers import clean, cut

# passes by itself; of the first three some of the work may be done
_TRANSIENT = frozenset(
    (
        *("fatal_error", "internal_error", "request_timeout"),
        *("ratelimited", "rate_limited", "message_limit_exceeded", "service_unavailable"),
        *("team_added_to_org", "org_login_required", "external_channel_migrating"),
        *("update_failed", "fetch_members_failed", "accesslimited"),
    )
)
# the message that is to be edited, or whose thread is meant, is not there or not ours any more
MESSAGE_LOST = frozenset(("message_not_found", "cant_update_message", "edit_window_closed"))
THREAD_LOST = frozenset(("message_not_found", "thread_not_found", "cannot_reply_to_message"))

_BOT_TOKEN = "write a bot token (xoxb-) of an installed app to bot_token_file"  # noqa: S105 - words
_INVITE = "invite the app: /invite in the channel"
_HELP: Mapping[str, str] = {
    "account_inactive": _BOT_TOKEN,
    "channel_not_found": f"channel takes the ID of a channel of this workspace; {_INVITE}",
    "ekm_access_denied": "the workspace's administrators suspended posting",
    "invalid_auth": _BOT_TOKEN,
    "is_archived": "unarchive the channel, or name another one",
    "is_inactive": "unarchive the channel, or name another one",
    "not_allowed_token_type": _BOT_TOKEN,
    "not_authed": _BOT_TOKEN,
    "not_in_channel": _INVITE,
    "restricted_action": "a setting of the workspace keeps apps from posting there",
    "restricted_action_read_only_channel": "let the app post in this read-only channel",
    "restricted_action_thread_only_channel": "name a channel that takes more than threads",
    "team_access_not_granted": "install the app in the channel's workspace",
    "token_expired": "switch token rotation off for this app, and install it again",
    "token_revoked": _BOT_TOKEN,
}
_LONGEST_CODE = 60


def code_of(answer: Mapping[str, Any]) -> str | None:
    """Slack's error code, None where the call succeeded."""
    if answer.get("ok") is True:
        return None
    code = answer.get("error")
    return cut(clean(code), _LONGEST_CODE) if isinstance(code, str) and code else "no reason"


class SlackRefusal(DeliveryError):
    """Slack answered ``ok: false``; ``code``: its word for why."""

    def __init__(self, receiver: str, method: str, answer: Mapping[str, Any]) -> None:
        self.code = code_of(answer) or ""
        helps = _HELP.get(self.code)
        if self.code == "missing_scope":
            needed = answer.get("needed")
            scope = cut(clean(needed), _LONGEST_CODE) if isinstance(needed, str) else "the scope"
            helps = f"add {scope} to the app's bot scopes and install it again"
        text = f"{receiver}: Slack answered {self.code} to {method}"
        super().__init__(
            f"{text}; {helps}" if helps else text, permanent=self.code not in _TRANSIENT
        )
