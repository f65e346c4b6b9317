"""The weekly report as a Slack message: its top screen, and where the rest is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from driftwatch.notify.numbers import clean, cut

EVENT = "report"
# Slack takes 3,000 characters in a section
_BODY_LIMIT = 2900
_LINE_LIMIT = 300
_TITLE_LIMIT = 150


def is_report(payload: Mapping[str, Any]) -> bool:
    """Whether what is to be sent is a weekly report and no page."""
    return payload.get("event") == EVENT


def report_blocks(document: Mapping[str, Any], harmless: Callable[[str], str]) -> dict[str, Any]:
    """The message for an incoming webhook: title, top screen, where the whole report is.

    Args:
        document: the report as JSON, with ``links``.
        harmless: makes a text one that Slack neither formats nor links.
    """
    title = cut(clean(document["week"]["title"]), _TITLE_LIMIT)
    lines, left = [], _BODY_LIMIT
    for line in document["lines"]:
        label = f"*{line['label']}* " if line["label"] else "    "
        text = label + harmless(cut(clean(line["text"]), _LINE_LIMIT))
        if len(text) + 1 > left:
            break
        lines.append(text)
        left -= len(text) + 1
    links = document.get("links") or {}
    where = [f"whole report: {links['report']}"] if links.get("report") else []
    where += [links["command"]] if links.get("command") else []
    made: list[dict[str, Any]] = [
        {"type": "section", "text": {"type": "plain_text", "text": title}},
        {"type": "section", "expand": True, "text": _mrkdwn("\n".join(lines))},
    ]
    if where:
        text = harmless(cut(clean("; ".join(where)), _LINE_LIMIT))
        made.append({"type": "context", "elements": [_mrkdwn(text)]})
    return {
        "text": harmless(clean(document["summary"])),
        "blocks": made,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _mrkdwn(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text, "verbatim": True}
