"""ntfy on the loopback: publishing as JSON, with the limits that the real one has.

Source: docs.ntfy.sh, "Publishing": JSON to the root URL; topic ``[-_A-Za-z0-9]{1,64}``; a message
of at most 4,096 bytes; priority 1 to 5; errors as JSON with ``code``, ``http`` and ``error``.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fakes.loopback import Answer, LoopbackServer, Request

TOPIC = "canary-topic"
_TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")
_LARGEST = 4096


class NtfyServer(LoopbackServer):
    """Takes messages at :attr:`apprise_address`.

    Attributes:
        messages: in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []

    @property
    def apprise_address(self) -> str:
        return f"ntfy://{self.address.removeprefix('http://')}/{TOPIC}"

    def judge(self, request: Request) -> Answer:
        if request.method != "POST" or request.path not in ("", "/"):
            return _error(404, 40401, "page not found")
        try:
            message = json.loads(request.body)
        except ValueError:
            return _error(400, 40024, "invalid request: request body must be message JSON")
        if not _TOPIC.fullmatch(str(message.get("topic", ""))):
            return _error(400, 40009, "invalid topic: path invalid")
        if message.get("priority", 3) not in range(1, 6):
            return _error(400, 40007, "invalid priority parameter")
        if len(str(message.get("message", "")).encode()) > _LARGEST:
            return _error(413, 41301, "message too large")
        self.messages.append(message)
        return Answer(200, json.dumps({"id": "x", "event": "message", **message}))


def _error(status: int, code: int, text: str) -> Answer:
    return Answer(status, json.dumps({"code": code, "http": status, "error": text}))
