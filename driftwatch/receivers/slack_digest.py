"""The day's digest of notices as a Slack message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from slack_sdk.models.blocks import (
    ContextBlock,
    MarkdownTextObject,
    PlainTextObject,
    SectionBlock,
)

from driftwatch.notify.digest_text import MOST_ROWS, left_out, rows, title
from driftwatch.notify.numbers import cut

_BODY_LIMIT = 2900  # Slack takes 3,000 characters in a section
# escaped; a row is two lines, their ends and two signs: every row fits
_LINE_LIMIT = (_BODY_LIMIT // MOST_ROWS - 4) // 2


def digest_blocks(digest: Mapping[str, Any], harmless: Callable[[str], str]) -> dict[str, Any]:
    """``text`` (phone preview) and ``blocks`` of one message.

    ``harmless``: escapes what comes from outside.
    """
    first = harmless(title(digest))
    lines = [
        f"*{_fitting(row.head, harmless)}*\n{_fitting(row.last, harmless)}" for row in rows(digest)
    ]
    where = "; ".join(part for part in (left_out(digest), digest["links"]["command"]) if part)
    parts: list[Any] = [
        SectionBlock(text=PlainTextObject(text=first, emoji=True)),
        SectionBlock(text=_mrkdwn("\n".join(lines)), expand=True),
        ContextBlock(elements=[_mrkdwn(harmless(where))]),
    ]
    return {
        "text": first,
        "blocks": [part.to_dict() for part in parts],
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _fitting(text: str, harmless: Callable[[str], str]) -> str:
    """Escaped, and cut before that: an escaped sign is never cut in two."""
    most = min(len(text), _LINE_LIMIT)
    while len(escaped := harmless(cut(text, most))) > _LINE_LIMIT:
        most -= 1
    return escaped


def _mrkdwn(text: str) -> MarkdownTextObject:
    # verbatim: channel names, mentions and bare addresses in labels stay text
    return MarkdownTextObject(text=text, verbatim=True)
