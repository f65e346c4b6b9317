"""Slack: pages through an incoming webhook, or through an app: an incident's one message, posted,
edited in place, with a thread.

slack-sdk's client asks through the bounded way out. Codes: the error tables of chat.postMessage and
chat.update at docs.slack.dev/reference/methods.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.request import Request

import orjson
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry import RetryHandler
from slack_sdk.http_retry.builtin_handlers import RateLimitErrorRetryHandler
from slack_sdk.web import SlackResponse, WebClient

from driftwatch.errors import DeliveryError
from driftwatch.numbers import clean, cut
from driftwatch.receivers.http import (
    SECONDS,
    exchange,
    json_of,
    post,
    refusal,
    retry_after,
    unexpected,
)
from driftwatch.receivers.sender import Configured, Conversation, Message
from driftwatch.receivers.slack_blocks import message_blocks, note_of
from driftwatch.settings.receivers import SlackReceiver

# what slack-sdk logs holds tokens and texts
SILENT = logging.Logger("driftwatch.slack", logging.CRITICAL + 1)
_RETRY_SECONDS = 30.0  # without a Retry-After, as Slack's own clients
_SHORT_WAIT_SECONDS = 3.0
_LONGEST_CODE = 60
# passes by itself; of the first three some of the work may be done
_TRANSIENT = frozenset((
    "fatal_error", "internal_error", "request_timeout", "ratelimited", "rate_limited",
    "message_limit_exceeded", "service_unavailable", "team_added_to_org", "org_login_required",
    "external_channel_migrating", "update_failed", "accesslimited",
))  # fmt: skip
# the message that is to be edited, or whose thread is meant, is not there or not ours any more
_LOST = frozenset((
    "message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found",
    "cannot_reply_to_message",
))  # fmt: skip
_BOT_TOKEN = "write a bot token (xoxb-) of an installed app to bot_token_file"  # noqa: S105 - words
_INVITE = "invite the app: /invite in the channel"
_HELP = dict.fromkeys(
    ("account_inactive", "invalid_auth", "not_allowed_token_type", "not_authed", "token_revoked"),
    _BOT_TOKEN,
) | {
    "channel_not_found": f"channel takes the ID of a channel of this workspace; {_INVITE}",
    "not_in_channel": _INVITE,
    "is_archived": "unarchive the channel, or name another one",
    "token_expired": "switch token rotation off for this app, and install it again",
}


class SlackRefusal(DeliveryError):
    """Slack answered ``ok: false``; ``code``: its word for why."""

    def __init__(self, receiver: str, method: str, answer: SlackResponse) -> None:
        self.code = cut(clean(str(answer.get("error") or "no reason")), _LONGEST_CODE)
        helps = _HELP.get(self.code)
        if self.code == "missing_scope":
            scope = cut(clean(str(answer.get("needed") or "the scope")), _LONGEST_CODE)
            helps = f"add {scope} to the app's bot scopes and install it again"
        text = f"{receiver}: Slack answered {self.code} to {method}"
        limited = answer.status_code == 429 or self.code in ("ratelimited", "rate_limited")
        wish = (retry_after(answer.headers) or _RETRY_SECONDS) if limited else None
        permanent = not limited and self.code not in _TRANSIENT
        text += f"; {helps}" if helps else ""
        super().__init__(text, permanent=permanent, retry_after_seconds=wish)


class _ShortWait(RateLimitErrorRetryHandler):
    """Waits for a short Retry-After; the outbox waits for a longer one."""

    def _can_retry(self, *, response: Any = None, **rest: Any) -> bool:
        headers = {} if response is None else {n: v[0] for n, v in response.headers.items()}
        wish = retry_after(headers)
        is_short = wish is not None and wish <= _SHORT_WAIT_SECONDS
        return is_short and super()._can_retry(response=response, **rest)


class SlackClient(WebClient):
    """slack-sdk's client within every bound of the outside; errors name the receiver, no token.

    Its methods raise SlackRefusal: Slack answered that it is not ok; DeliveryError: it gave no
    answer.
    """

    def __init__(self, name: str, token: str, url: str, seconds: float = SECONDS) -> None:
        retries: list[RetryHandler] = [_ShortWait(max_retry_count=1)]
        super().__init__(token, url.rstrip("/") + "/", logger=SILENT, retry_handlers=retries)
        self.name, self._seconds = name, seconds

    def __repr__(self) -> str:
        return f"SlackClient({self.name!r})"

    def api_call(self, api_method: str, **options: Any) -> SlackResponse:
        """Call a method. Raises as above."""
        try:
            return super().api_call(api_method, **options)
        except SlackApiError as error:
            failure = SlackRefusal(self.name, api_method, error.response)
        raise failure

    def _perform_urllib_http_request_internal(self, url: str, req: Request) -> dict[str, Any]:
        headers = dict(req.header_items())
        sent = headers.get("Authorization", "").removeprefix("Bearer ")  # an app's own token
        hidden = tuple(filter(None, (self.token, sent)))
        body: Any = req.data
        answer = exchange(self.name, "POST", url, body or b"", headers, hidden, self._seconds)
        if answer.status != 429 and not 200 <= answer.status < 300:
            raise refusal(self.name, answer, hidden)
        if answer.status != 429 and "ok" not in json_of(answer, self.name, "Slack"):
            raise unexpected(answer, self.name, "Slack")
        limited = '{"ok": false, "error": "ratelimited"}'
        text = limited if answer.status == 429 else answer.body.decode()
        return {"status": answer.status, "headers": dict(answer.headers), "body": text}


@dataclass(frozen=True, slots=True)
class SlackSender(Configured[SlackReceiver]):
    """Posts to an incoming webhook; with an app, posts and edits messages in one channel."""

    seconds: float = SECONDS

    def send(self, message: Message) -> Conversation | None:
        """Post, or edit the message that is there and add a note to its thread.

        Returns channel and time stamp of the incident's message, of an app.

        Raises DeliveryError: Slack did not take it. What was done of it is done again by the next
        attempt without harm: an edit is repeated, a note may stand in the thread twice.
        """
        if not self.settings.is_app:
            url, body = self.settings.read_url("webhook_url"), orjson.dumps(message_blocks(message))
            answer = post(self.name, url, body, seconds=self.seconds)
            if answer.body.strip() != b"ok":
                raise unexpected(answer, self.name, "Slack")
            return None
        client = client_of(self.name, self.settings, self.seconds)
        clicks = self.settings.read("app_token") is not None
        document, before = message_blocks(message, clicks=clicks), message.conversation or {}
        # without "ts" it is of the kind that a receiver of this name had before
        if message.kind == "report" or "ts" not in before:
            return self._post(client, message, document)
        # a verdict comes after the end: what stands there stays
        if message.event != "verified" and not self._edit(client, before, document):
            return self._post(client, message, document)
        if (note := note_of(message)) is not None:
            self._reply(client, before, note)
        return before

    def _post(
        self, client: SlackClient, message: Message, document: Mapping[str, Any]
    ) -> Conversation | None:
        answer = client.chat_postMessage(channel=self.settings.channel or "", **document)
        if message.kind == "report":
            return None
        return {"channel": str(answer.get("channel")), "ts": str(answer.get("ts"))}

    def _edit(self, client: SlackClient, where: Conversation, document: Mapping[str, Any]) -> bool:
        """Edit the message; False where it is gone."""
        try:
            edited = {"text": document["text"], "blocks": document["blocks"]}
            client.chat_update(channel=where["channel"], ts=where["ts"], **edited)
        except SlackRefusal as error:
            moved = where["channel"] != self.settings.channel
            if error.code not in _LOST and not (error.code == "channel_not_found" and moved):
                raise
            return False
        return True

    def _reply(self, client: SlackClient, where: Conversation, note: Mapping[str, Any]) -> None:
        channel, ts = where["channel"], where["ts"]
        try:
            client.chat_postMessage(channel=channel, thread_ts=ts, unfurl_links=False, **note)
        except SlackRefusal as error:
            # the message was edited a moment ago, and that is what counts
            if error.code not in _LOST:
                raise


def client_of(name: str, settings: SlackReceiver, seconds: float = SECONDS) -> SlackClient:
    """The Web API with the app's bot token.

    Raises ConfigError: the token cannot be read.
    """
    return SlackClient(name, settings.read("bot_token") or "", settings.api_url, seconds)
