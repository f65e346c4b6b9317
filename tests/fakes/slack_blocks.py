"""What Slack refuses of a message: the limits of Block Kit, as its reference has them.

Sources: docs.slack.dev/reference/block-kit (blocks, button element), chat.postMessage (40,000
characters), and, for ``msg_blocks_too_long``, answers of the real service.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MOST_BLOCKS = 50
LONGEST_TEXT = 3000
LONGEST_HEADER = 150
LONGEST_FIELD = 2000
MOST_FIELDS = 10
MOST_CONTEXT = 10
MOST_BUTTONS = 25
LONGEST_BUTTON = 75
LONGEST_URL = 3000
LONGEST_VALUE = 2000
LONGEST_ID = 255
LONGEST_MESSAGE = 13_200
LONGEST_TOP_TEXT = 40_000

# what Slack would act on: <!channel>, <!here>, <!everyone>, <!subteam^...>, <@user>, <#channel>
_MENTION = re.compile(r"<(?:!(?:channel|here|everyone|subteam\^)|@|#)[^>]*>?")
_DATE = re.compile(r"<!date\^(\d+)\^[^|>]*\{[a-z_]+\}[^|>]*(?:\^[^|>]*)?\|[^>]+>")
_LINK = re.compile(r"<https?://[^|>\s]+(?:\|[^>]*)?>")


def mentions(payload: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(one for text in _mrkdwn_texts(payload) for one in _MENTION.findall(text))


def refusal(payload: Any) -> str | None:
    """Slack's error text for a payload, None where it would be posted."""
    if not isinstance(payload, dict):
        return "invalid_payload"
    text, blocks = payload.get("text"), payload.get("blocks")
    if text is not None and not isinstance(text, str):
        return "invalid_payload"
    if not text and not blocks and not payload.get("attachments"):
        return "no_text"
    if text is not None and len(text) > LONGEST_TOP_TEXT:
        return "msg_too_long"
    if blocks is None:
        return None
    if not isinstance(blocks, list):
        return "invalid_blocks_format"
    if len(blocks) > MOST_BLOCKS or not all(map(_block_is_valid, blocks)):
        return "invalid_blocks"
    if sum(map(len, _mrkdwn_texts(payload))) > LONGEST_MESSAGE:
        return "msg_blocks_too_long"
    acting = [
        one.get("action_id")
        for block in blocks
        if block.get("type") == "actions"
        for one in block["elements"]
    ]
    if len(set(acting)) != len(acting):
        return "invalid_blocks"
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
        and len(str(element.get("value", ""))) <= LONGEST_VALUE
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
