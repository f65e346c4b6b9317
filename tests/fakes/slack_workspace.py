"""Slack's Web API and Socket Mode on the loopback, for an app with a bot token.

Sources: docs.slack.dev/reference/methods (arguments, answers, error tables of each method below),
/apis/events-api/using-socket-mode (hello, envelopes, disconnect), /reference/interaction-payloads
(block_actions), /apis/web-api/rate-limits. slack-sdk's own clients are run against it in tests.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qsl

from fakes.loopback import Answer, LoopbackServer, Request
from fakes.slack_blocks import mentions, refusal
from fakes.slack_socket import SlackSocket

BOT_TOKEN = "xoxb-canary-bot-token"
APP_TOKEN = "xapp-canary-app-token"
TEAM, APP, BOT = "T0000TEAM", "A0000APP", "B0000BOT"
ALL_SCOPES = ("channels:history", "chat:write")
# method → the scope that it needs, of those for public channels
_SCOPES = {
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "conversations.history": "channels:history",
}
# these take JSON; others read and take forms
_JSON = frozenset(("chat.postMessage", "chat.update"))
# in a form these are JSON
_OBJECTS = frozenset(("blocks", "metadata"))


@dataclass(slots=True)
class Posted:
    """One message as it stands."""

    channel: str
    ts: str
    payload: dict[str, Any]
    thread_ts: str | None = None
    edits: int = 0


class SlackWorkspace(LoopbackServer):
    """One workspace with one app; the API is at :attr:`api_url`.

    Args:
        members: channel → user ids; the app is in all of them.
        names: user id → display name.

    Attributes:
        scopes: what the bot token may do.
        messages: by (channel, ts), threads too; a deleted one is not there.
        answers: what was posted to a ``response_url``, in order.
        calls: method names, in order.
        failing: answers per method, given before any judging, first in first out.
        silent: methods whose next calls are done and never answered, one entry a call.
    """

    def __init__(
        self,
        members: Mapping[str, tuple[str, ...]],
        names: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.members, self.names = dict(members), dict(names or {})
        self.scopes = set(ALL_SCOPES)
        self.archived: set[str] = set()
        self.messages: dict[tuple[str, str], Posted] = {}
        self.mentions: list[str] = []
        self.answers: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.failing: dict[str, deque[Answer]] = {}
        self.silent: list[str] = []
        self.socket = SlackSocket()
        self._numbers = itertools.count(1)
        self._judging = threading.Lock()

    @property
    def api_url(self) -> str:
        return f"{self.address}/api/"

    def top(self, channel: str) -> list[Posted]:
        """The messages of a channel that are in no thread, oldest first."""
        every = [one for one in self.messages.values() if one.channel == channel]
        return [one for one in every if one.thread_ts is None]

    def thread(self, message: Posted) -> list[Posted]:
        return [one for one in self.messages.values() if one.thread_ts == message.ts]

    def fail_call(self, method: str, error: str, status: int = 200, **rest: str) -> None:
        """Answer the method's next call with ``ok: false``, or with another status."""
        headers = {n.replace("_", "-"): t for n, t in rest.items() if n == "Retry_After"}
        body = {"ok": False, "error": error, **{n: t for n, t in rest.items() if n not in headers}}
        answer = Answer(status, json.dumps(body), headers)
        self.failing.setdefault(method, deque()).append(answer)

    def click(self, message: Posted, action_id: str, user: str, at: float, **rest: Any) -> str:
        """Somebody clicks a button of a message; returns the envelope's id."""
        return self.socket.push("interactive", self.payload(message, action_id, user, at, **rest))

    def payload(
        self, message: Posted, action_id: str, user: str, at: float, **rest: Any
    ) -> dict[str, Any]:
        """What a click brings; ``at``: when, seconds of the epoch; ``rest``: other fields."""
        buttons = [
            one
            for block in message.payload["blocks"]
            if block["type"] == "actions"
            for one in block["elements"]
            if one["action_id"] == action_id
        ]
        if not buttons and "actions" not in rest:
            raise LookupError(f"the message has no button {action_id}")
        return {
            "type": "block_actions",
            "team": {"id": TEAM, "domain": "example"},
            "user": {"id": user, "name": self.names.get(user, user.lower()), "team_id": TEAM},
            "api_app_id": APP,
            "container": {
                "type": "message",
                "message_ts": message.ts,
                "channel_id": message.channel,
                "is_ephemeral": False,
            },
            "trigger_id": f"{next(self._numbers)}.1.1",
            "channel": {"id": message.channel, "name": "oncall"},
            "message": {"type": "message", "ts": message.ts, "text": message.payload["text"]},
            "response_url": f"{self.address}/actions/{TEAM}/{next(self._numbers)}",
            "actions": [
                {
                    "type": "button",
                    "action_id": action_id,
                    "block_id": "b1",
                    "text": button["text"],
                    "value": button.get("value"),
                    "action_ts": f"{at:.6f}",
                }
                for button in buttons
            ],
            **rest,
        }

    def judge(self, request: Request) -> Answer:
        with self._judging:
            if request.path.startswith("/actions/"):
                self.answers.append(json.loads(request.body))
                return Answer(200, "ok")
            return self._method(request)

    def _method(self, request: Request) -> Answer:
        method = request.path.removeprefix("/api/")
        self.calls.append(method)
        if planned := self.failing.get(method):
            return planned.popleft()
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        wanted = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if token != wanted:
            return _answer({"ok": False, "error": "invalid_auth" if token else "not_authed"})
        scope = _SCOPES.get(method)
        if scope is not None and scope not in self.scopes:
            provided = ",".join(sorted(self.scopes))
            document = {"error": "missing_scope", "needed": scope, "provided": provided}
            return self._scoped({"ok": False, **document})
        handler = getattr(self, "_" + method.replace(".", "_"), None)
        if handler is None:
            return _answer({"ok": False, "error": "unknown_method"})
        arguments = _arguments(request, as_json=method in _JSON)
        if arguments is None:
            return _answer({"ok": False, "error": "invalid_arguments"})
        answer = self._scoped(handler(arguments))
        if method in self.silent:
            self.silent.remove(method)
            return Answer(0, hang=True)
        return answer

    def _scoped(self, document: Mapping[str, Any]) -> Answer:
        headers = {"X-OAuth-Scopes": ",".join(sorted(self.scopes))}
        return _answer({"ok": True, **document}, headers)

    def _channel_error(self, channel: Any) -> str | None:
        if channel not in self.members:
            return "channel_not_found"
        return "is_archived" if channel in self.archived else None

    def _auth_test(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"team": "example", "team_id": TEAM, "user": "driftwatch", "bot_id": BOT}

    def _apps_connections_open(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"url": self.socket.url}

    def _chat_postMessage(self, arguments: dict[str, Any]) -> dict[str, Any]:
        channel, thread = arguments.get("channel"), arguments.get("thread_ts")
        wrong = self._channel_error(channel) or refusal(arguments)
        if wrong is None and thread is not None and (channel, thread) not in self.messages:
            wrong = "thread_not_found"
        if wrong is not None or not isinstance(channel, str):
            return {"ok": False, "error": wrong}
        ts = f"{1_794_970_000 + next(self._numbers)}.000100"
        self.messages[channel, ts] = Posted(channel, ts, arguments, thread)
        self.mentions += mentions(arguments)
        return {"channel": channel, "ts": ts, "message": {"type": "message", "ts": ts}}

    def _chat_update(self, arguments: dict[str, Any]) -> dict[str, Any]:
        channel, ts = arguments.get("channel"), arguments.get("ts")
        wrong = self._channel_error(channel)
        if wrong == "is_archived":
            wrong = "is_inactive"
        posted = self.messages.get((str(channel), str(ts)))
        wrong = wrong or ("message_not_found" if posted is None else refusal(arguments))
        if wrong is not None or posted is None:
            return {"ok": False, "error": wrong}
        metadata = {name: posted.payload[name] for name in ("metadata",) if name in posted.payload}
        posted.payload, posted.edits = {**metadata, **arguments}, posted.edits + 1
        self.mentions += mentions(arguments)
        return {"channel": channel, "ts": ts, "text": arguments.get("text", "")}

    def __enter__(self) -> Self:
        self.socket.start()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self.socket.stop()
        super().__exit__(*error)


def _arguments(request: Request, *, as_json: bool) -> dict[str, Any] | None:
    kind = request.headers.get("content-type", "")
    try:
        if as_json and "application/json" in kind:
            document = json.loads(request.body)
            return document if isinstance(document, dict) else None
        if "application/x-www-form-urlencoded" in kind or not request.body:
            form = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
            return {n: json.loads(t) if n in _OBJECTS else t for n, t in form.items()}
    except ValueError:
        return None
    return None


def _answer(document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
    kind = {"Content-Type": "application/json; charset=utf-8"}
    return Answer(200, json.dumps(document), {**kind, **(headers or {})})
