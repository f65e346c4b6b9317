"""Slack: pages through an incoming webhook, or through an app: an incident's one message, posted,
edited in place, with a thread.

The Web API is asked through the bounded way out: slack-sdk's WebClient reads answers without a
bound, takes proxies from the environment and follows redirects, and its public interface changes
none of that. Codes: the error tables of chat.postMessage and chat.update at
docs.slack.dev/reference/methods. A 429 names seconds in which the outbox sends nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import orjson
from slack_sdk.models.blocks import SectionBlock
from slack_sdk.models.metadata import Metadata

from driftwatch.errors import DeliveryError
from driftwatch.numbers import clean, cut
from driftwatch.receivers.http import JSON, Limits, post
from driftwatch.receivers.sender import Conversation, Message, Sender, retry_after
from driftwatch.receivers.slack_blocks import (
    Note,
    blocks,
    mrkdwn,
    note_of,
    report_blocks,
    standing,
)
from driftwatch.settings.receivers import SlackReceiver

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


METADATA = "driftwatch_incident"
_CLOCKS_APART = timedelta(minutes=10)
_RECENT_MESSAGES = 200


@dataclass(frozen=True, slots=True)
class SlackAppSender:
    """Posts and edits messages in one channel."""

    api: SlackApi  # with the bot token
    channel: str  # its ID
    clicks: bool  # a Socket Mode connection brings clicks back

    @property
    def name(self) -> str:
        """The receiver's."""
        return self.api.name

    def send(self, message: Message) -> Conversation | None:
        """Post, or edit what stands there and tell the thread; retries are the outbox's business.

        Returns channel and time stamp of the incident's message.

        Raises DeliveryError: Slack did not take it. What was done of it is done again by the next
        attempt without harm: an edit says the same twice, a note in a thread may stand twice.
        """
        if message.kind != "incident":
            self._post(report_blocks(message.report))
            return None
        if "ts" not in (message.conversation or {}):
            # of the kind that a receiver of this name had before: Slack has no message of it
            message = replace(message, conversation=None)
        before, page, value = message.conversation, message.page, message.subject
        document = standing(page, clicks=self.clicks, value=value, is_first=before is None)
        where = None if before is None else self._edit(before, document)
        if where is None:
            where = self._existing(message, document) or self._post(
                {**document, "metadata": _metadata(message, self.name)}
            )
        elif (note := note_of(message)) is not None:
            self._reply(where, note)
        return where

    def _post(self, document: Mapping[str, Any]) -> dict[str, str]:
        answer = self.api.call("chat.postMessage", {"channel": self.channel, **document})
        channel, ts = answer.get("channel"), answer.get("ts")
        if not isinstance(ts, str):
            text = f"{self.name}: Slack's answer names no message"
            raise DeliveryError(text, permanent=True)
        return {"channel": str(channel or self.channel), "ts": ts}

    def _edit(self, before: Conversation, document: Mapping[str, Any]) -> dict[str, str] | None:
        """The message after the edit; None where it is gone."""
        where = {"channel": before["channel"], "ts": before["ts"]}
        edited = {name: document[name] for name in ("text", "blocks")}
        try:
            self.api.call("chat.update", {**where, **edited})
        except SlackRefusal as error:
            moved = error.code == "channel_not_found" and where["channel"] != self.channel
            if error.code not in MESSAGE_LOST and not moved:
                raise
            return None
        return where

    def _reply(self, where: Mapping[str, str], note: Note) -> None:
        reply = {
            "channel": where["channel"],
            "thread_ts": where["ts"],
            "text": note.text,
            "blocks": [SectionBlock(text=mrkdwn(note.text)).to_dict()],
            "unfurl_links": False,
            "unfurl_media": False,
            **({"reply_broadcast": True} if note.broadcast else {}),
        }
        try:
            self.api.call("chat.postMessage", reply)
        except SlackRefusal as error:
            # the message was edited a moment ago: what it says is what counts
            if error.code not in THREAD_LOST:
                raise

    def _existing(self, message: Message, document: Mapping[str, Any]) -> dict[str, str] | None:
        """A message that an earlier attempt posted without driftwatch hearing of it, edited.

        chat.postMessage has no documented key that makes it happen once: where the app may read
        the channel's history, the message is found again by its metadata.
        """
        if message.conversation is not None:
            return None
        began = message.page.times.firing_at or datetime.now(UTC)
        try:
            answer = self.api.ask(
                "conversations.history",
                channel=self.channel,
                oldest=f"{(began - _CLOCKS_APART).timestamp():.6f}",
                limit=str(_RECENT_MESSAGES),
                include_all_metadata="true",
            )
        except DeliveryError:
            return None
        wanted = _metadata(message, self.name)
        for one in answer.get("messages") or ():
            if isinstance(one, dict) and one.get("metadata") == wanted and one.get("ts"):
                return self._edit({"channel": self.channel, "ts": str(one["ts"])}, document)
        return None


def _metadata(message: Message, receiver: str) -> dict[str, Any]:
    """What names the incident's message for driftwatch, unseen by people."""
    about = {"incident": message.subject, "receiver": receiver}
    return dict(Metadata(event_type=METADATA, event_payload=about).to_dict())


_LIMITS = Limits(whole=True)


@dataclass(frozen=True, slots=True)
class SlackSender:
    """Posts to an incoming webhook."""

    name: str  # receiver name, the only thing of it that errors print
    url: str = field(repr=False)  # the webhook's URL, a secret
    limits: Limits = _LIMITS

    def send(self, message: Message) -> None:
        """Post the page, or a weekly report, once; retries are the outbox's business.

        Raises DeliveryError: Slack did not take it.
        """
        is_page = message.kind == "incident"
        body = orjson.dumps(blocks(message.page) if is_page else report_blocks(message.report))
        answer = post(self.name, self.url, body, HEADERS, self.limits)
        if answer.text.strip() != "ok":
            # a login page or a wrong address answers 200 too
            text = f"{self.name} answered 200, but not as Slack does"
            raise DeliveryError(text, permanent=True)


def sender_of(name: str, settings: SlackReceiver) -> Sender:
    """The sender of a receiver: a webhook, or an app.

    Raises ConfigError: a secret cannot be read.
    """
    if not settings.is_app:
        return SlackSender(name, settings.read_url("webhook_url"))
    clicks = settings.read("app_token") is not None
    return SlackAppSender(app_of(name, settings), settings.channel or "", clicks)


def app_of(name: str, settings: SlackReceiver) -> SlackApi:
    """The Web API with the app's bot token.

    Raises ConfigError: the token cannot be read.
    """
    return SlackApi(name, settings.read("bot_token") or "", settings.api_url.rstrip("/") + "/")
