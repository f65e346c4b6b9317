"""Slack's incoming webhook on the loopback: it refuses what the real one refuses.

Sources: docs.slack.dev, "Sending messages using incoming webhooks" (errors as plain text: 400
``invalid_payload``, ``no_text``, ``invalid_blocks``; 403 ``invalid_token``; 404 ``no_service``;
410 ``channel_is_archived``; 429 with ``Retry-After``), the Block Kit reference for the limits,
and, for ``must be less than 3001 characters``, answers of the real service.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fakes.loopback import Answer, LoopbackServer, Request
from fakes.slack_blocks import mentions, refusal

TOKEN_PATH = "/services/T0000/B0000/canary-slack-token"


@dataclass(frozen=True, slots=True)
class Message:
    """A message Slack took."""

    payload: Mapping[str, Any]  # as it arrived
    mentions: tuple[str, ...]  # whom it would have paged besides the channel: should be empty


class SlackServer(LoopbackServer):
    """Takes messages at :attr:`url`.

    Attributes:
        accepted: what it took, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.accepted: list[Message] = []

    @property
    def url(self) -> str:
        return self.address + TOKEN_PATH

    def judge(self, request: Request) -> Answer:
        if request.method != "POST":
            return Answer(405, "method_not_allowed")
        if request.path != TOKEN_PATH:
            has_workspace = request.path.startswith(TOKEN_PATH.rpartition("/")[0])
            return Answer(403, "invalid_token") if has_workspace else Answer(404, "no_service")
        if "application/json" not in request.headers.get("content-type", ""):
            return Answer(400, "invalid_payload")
        try:
            payload = json.loads(request.body)
        except ValueError:
            return Answer(400, "invalid_payload")
        wrong = refusal(payload)
        if wrong is not None:
            return Answer(400, wrong)
        self.accepted.append(Message(payload, mentions(payload)))
        return Answer(200, "ok", {"Content-Type": "text/html"})
