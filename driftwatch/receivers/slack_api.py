"""Slack's Web API through the bounded way out, and what its answers mean for a message.

slack-sdk builds the blocks and keeps the Socket Mode connection. Its WebClient reads answers
without a bound, takes proxies from the environment and follows redirects, and its public interface
changes none of that. Codes: the error tables of chat.postMessage and chat.update at
docs.slack.dev/reference/methods. A 429 names seconds in which the outbox sends nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import orjson

from driftwatch.errors import DeliveryError
from driftwatch.notify.numbers import clean, cut
from driftwatch.receivers.http import JSON, Limits, post
from driftwatch.receivers.sender import retry_after

LIMITS = Limits(answer_bytes=1024 * 1024, whole=True)  # a page of conversations.history
HEADERS = {"Content-Type": "application/json;charset=utf-8"}
_RETRY_SECONDS = 30.0  # without a Retry-After, as Slack's own clients
_LONGEST_CODE = 60
# passes by itself; of the first three some of the work may be done
_TRANSIENT = frozenset(
    (
        *("fatal_error", "internal_error", "request_timeout"),
        *("ratelimited", "rate_limited", "message_limit_exceeded", "service_unavailable"),
        *("team_added_to_org", "org_login_required", "external_channel_migrating"),
        *("update_failed", "accesslimited"),
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


class SlackRefusal(DeliveryError):
    """Slack answered ``ok: false``; ``code``: its word for why."""

    def __init__(self, receiver: str, method: str, answer: Mapping[str, Any]) -> None:
        code = answer.get("error")
        self.code = cut(clean(code), _LONGEST_CODE) if isinstance(code, str) else "no reason"
        helps = _HELP.get(self.code)
        if self.code == "missing_scope":
            needed = answer.get("needed")
            scope = cut(clean(needed), _LONGEST_CODE) if isinstance(needed, str) else "the scope"
            helps = f"add {scope} to the app's bot scopes and install it again"
        text = f"{receiver}: Slack answered {self.code} to {method}"
        permanent = self.code not in _TRANSIENT
        super().__init__(f"{text}; {helps}" if helps else text, permanent=permanent)


@dataclass(frozen=True, slots=True)
class SlackApi:
    """Calls of one app; every error names the receiver and no token."""

    name: str  # receiver name
    token: str = field(repr=False)  # a bot token, or an app-level token
    url: str  # https://slack.com/api/
    limits: Limits = LIMITS

    def call(self, method: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Call a method that writes: JSON in and out.

        Raises SlackRefusal: Slack answered that it is not ok; DeliveryError: there was no answer.
        """
        return self._call(method, orjson.dumps(document), HEADERS["Content-Type"])

    def ask(self, method: str, **arguments: str) -> dict[str, Any]:
        """Call a method that reads: these take forms. Raises as above."""
        form = "application/x-www-form-urlencoded"
        return self._call(method, urlencode(arguments).encode(), form)

    def outside(self, url: str, document: Mapping[str, Any]) -> None:
        """Post JSON to an address that Slack named, without the token.

        Raises DeliveryError: it was not taken, or the address is not Slack's.
        """
        if not self.is_slack(url):
            text = f"{self.name}: Slack named an address that is not its own; refused"
            raise DeliveryError(text, permanent=True)
        post(self.name, url, orjson.dumps(document), JSON, secrets=(self.token,))

    def is_slack(self, url: str) -> bool:
        """Whether an address is of the API's host, or below its domain, and as safe as that."""
        try:
            own, other = urlsplit(self.url), urlsplit(url)
            host, domain = other.hostname or "", own.hostname or ""
            secure = {"https": ("https", "wss"), "http": ("http", "ws")}[own.scheme]
            usual_port = own.scheme == "http" or other.port in (None, 443)
        except (ValueError, KeyError):
            return False
        same = host == domain or host.endswith(f".{domain}")
        return same and other.scheme in secure and usual_port and other.username is None

    def _call(self, method: str, body: bytes, content_type: str) -> dict[str, Any]:
        headers = {"Content-Type": content_type, "Authorization": f"Bearer {self.token}"}
        url, hidden = urljoin(self.url, method), (self.token,)
        answer = post(self.name, url, body, headers, self.limits, secrets=hidden)
        try:
            document = orjson.loads(answer.text)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict) or "ok" not in document:
            # a login page or a wrong address answers 200 too
            text = f"{self.name} answered {answer.status} to {method}, but not as Slack does"
            raise DeliveryError(text, permanent=True)
        if document["ok"] is not True:
            refused = SlackRefusal(self.name, method, document)
            if refused.code in ("ratelimited", "rate_limited"):
                refused.retry_after_seconds = retry_after(answer.headers) or _RETRY_SECONDS
            raise refused
        return document
