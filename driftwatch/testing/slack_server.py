"""Slack's incoming webhook on the loopback: it refuses what the real one refuses.

Sources: docs.slack.dev, "Sending messages using incoming webhooks" (errors as plain text: 400
``invalid_payload``, ``no_text``, ``invalid_blocks``; 403 ``invalid_token``; 404 ``no_service``;
410 ``channel_is_archived``; 429 with ``Retry-After``), the Block Kit reference for the limits,
and, for ``must be less than 3001 characters``, answers of the real service.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from driftwatch.testing.loopback import Answer, LoopbackServer, Request

MOST_BLOCKS = 50
LONGEST_TEXT = 3000
LONGEST_HEADER = 150
LONGEST_FIELD = 2000
MOST_FIELDS = 10
MOST_CONTEXT = 10
MOST_BUTTONS = 25
LONGEST_BUTTON = 75
LONGEST_URL = 3000
LONGEST_ID = 255
LONGEST_MESSAGE = 13_200

TOKEN_PATH = "/services/T0000/B0000/canary-slack-token"  # noqa: S105 - of a server in a test

# what Slack would act on: <!channel>, <!here>, <!everyone>, <!subteam^...>, <@user>, <#channel>
_MENTION = re.compile(r"<(?:!(?:channel|here|everyone|subteam\^)|@|#)[^>]*>?")
_DATE = re.compile(r"<!date\^(\d+)\^[^|>]*\{[a-z_]+\}[^|>]*(?:\^[^|>]*)?\|[^>]+>")
_LINK = re.compile(r"<https?://[^|>\s]+(?:\|[^>]*)?>")


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
        """The webhook's URL, with its token."""
        return self.address + TOKEN_PATH

    def judge(self, request: Request) -> Answer:
        """Slack's answer: ``ok``, or the name of what is wrong."""
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
        texts = list(_mrkdwn_texts(payload))
        mentions = tuple(mention for text in texts for mention in _MENTION.findall(text))
        self.accepted.append(Message(payload, mentions))
        return Answer(200, "ok", {"Content-Type": "text/html"})


def refusal(payload: Any) -> str | None:
    """Slack's error text for a payload, None where it would be posted."""
    if not isinstance(payload, dict):
        return "invalid_payload"
    text, blocks = payload.get("text"), payload.get("blocks")
    if text is not None and not isinstance(text, str):
        return "invalid_payload"
    if not text and not blocks and not payload.get("attachments"):
        return "no_text"
    if blocks is None:
        return None
    if not isinstance(blocks, list):
        return "invalid_blocks_format"
    if len(blocks) > MOST_BLOCKS or not all(map(_block_is_valid, blocks)):
        return "invalid_blocks"
    if sum(map(len, _mrkdwn_texts(payload))) > LONGEST_MESSAGE:
        return "msg_blocks_too_long"
    # an angle bracket that opens nothing Slack knows: what is shown is not what was meant
    for mrkdwn in _mrkdwn_texts({"blocks": blocks}):
        rest = _MENTION.sub("", _LINK.sub("", _DATE.sub("", mrkdwn)))
        if "<" in rest:
            return "invalid_blocks"
    return None


def _block_is_valid(block: Any) -> bool:
    if not isinstance(block, dict) or len(str(block.get("block_id", ""))) > LONGEST_ID:
        return False
    check = {
        "section": _section,
        "header": lambda b: _text(b.get("text"), LONGEST_HEADER, plain=True),
        "divider": lambda b: True,
        "context": lambda b: _each(b, MOST_CONTEXT, lambda e: _text(e, LONGEST_TEXT)),
        "actions": _actions,
    }.get(str(block.get("type")))
    return check is not None and bool(check(block))


def _section(block: Mapping[str, Any]) -> bool:
    text, fields = block.get("text"), block.get("fields")
    if text is None and not fields:
        return False
    if text is not None and not _text(text, LONGEST_TEXT):
        return False
    if fields is None:
        return True
    return len(fields) <= MOST_FIELDS and all(_text(one, LONGEST_FIELD) for one in fields)


def _actions(block: Mapping[str, Any]) -> bool:
    names = [one.get("action_id") for one in block.get("elements") or () if isinstance(one, dict)]
    return len(set(names)) == len(names) and _each(block, MOST_BUTTONS, _button)


def _button(element: Any) -> bool:
    return (
        isinstance(element, dict)
        and element.get("type") == "button"
        and _text(element.get("text"), LONGEST_BUTTON, plain=True)
        and len(str(element.get("action_id", ""))) <= LONGEST_ID
        and len(str(element.get("url", ""))) <= LONGEST_URL
    )


def _each(block: Mapping[str, Any], most: int, check: Any) -> bool:
    elements = block.get("elements")
    return isinstance(elements, list) and 0 < len(elements) <= most and all(map(check, elements))


def _text(element: Any, longest: int, *, plain: bool = False) -> bool:
    if not isinstance(element, dict) or not isinstance(element.get("text"), str):
        return False
    kind = element.get("type")
    if kind not in (("plain_text",) if plain else ("plain_text", "mrkdwn")):
        return False
    # "emoji" belongs to plain text, "verbatim" to mrkdwn
    if ("emoji" in element and kind != "plain_text") or (
        "verbatim" in element and kind != "mrkdwn"
    ):
        return False
    return 0 < len(element["text"]) <= longest


def _mrkdwn_texts(payload: Mapping[str, Any]) -> Iterator[str]:
    """Every text that Slack parses, and plain texts too: escaping them harms nothing."""
    if payload.get("text"):
        yield payload["text"]
    for block in payload.get("blocks") or ():
        for element in (block.get("text"), *(block.get("fields") or ()), *_elements(block)):
            if isinstance(element, dict) and isinstance(element.get("text"), str):
                yield element["text"]


def _elements(block: Mapping[str, Any]) -> Iterator[Any]:
    for element in block.get("elements") or ():
        yield element.get("text") if isinstance(element.get("text"), dict) else element
