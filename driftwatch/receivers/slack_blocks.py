"""Pages and reports as Slack messages: line 1, a short body, commands or buttons; an incident's
message as it stands, and what its thread says of a change. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slack_sdk.models.blocks import (
    ActionsBlock,
    ButtonElement,
    ContextBlock,
    MarkdownTextObject,
    PlainTextObject,
    SectionBlock,
)

from driftwatch.notify.headline import marked, rendered
from driftwatch.notify.page import Acknowledgement, Line, Page
from driftwatch.notify.verification_line import outcome_line
from driftwatch.numbers import clean, cut, duration, moment
from driftwatch.receivers.sender import Message

BODY_LIMIT = 900
# of a weekly report; Slack takes 3,000 characters in a section
_REPORT_LIMIT, _REPORT_LINE_LIMIT, _TITLE_LIMIT = 2900, 300, 150
_COMMAND_LIMIT, _URL_LIMIT = 300, 3000
_LINKS = (("driftwatch", "Open"), ("runbook", "Runbook"))

# Slack's signs of formatting, by look-alikes: a label must not make bold what follows it. An
# underscore inside a word formats nothing and stays.
_LOOK_ALIKE = str.maketrans({"*": "∗", "~": "∼", "`": "ˋ"})
_OUTER_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")

Button = tuple[str, str]  # action id and word


def escape(text: str) -> str:
    """``& < >`` as Slack wants them: a label can neither mention nor link.

    >>> escape("<!channel> & co")
    '&lt;!channel&gt; &amp; co'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def harmless(text: str) -> str:
    """Escaped, and without a sign that would format the text around it.

    >>> harmless("*a* max_num_seqs _b_")
    '∗a∗ max_num_seqs ˍbˍ'
    """
    return escape(_OUTER_UNDERSCORE.sub("ˍ", text.translate(_LOOK_ALIKE)))


def mrkdwn(text: str) -> MarkdownTextObject:
    """A text with our own formatting; ``verbatim``: names and addresses in labels stay text."""
    return MarkdownTextObject(text=text, verbatim=True)


def blocks(page: Page) -> dict[str, Any]:
    """The message for an incoming webhook: line 1 on top, a short body, commands, links.

    Returns ``text`` (phone preview) and ``blocks``: at most four, the body at most 900 characters.
    """
    line = marked(page, page.summary)
    return message_of_line(line, [*body_parts(page), *command_parts(page), *button_parts(page)])


def message_of_line(line: str, parts: Sequence[Any]) -> dict[str, Any]:
    """A message under its first line, which is its preview too; nothing in it unfurls."""
    return {
        "text": harmless(line),
        "blocks": [part.to_dict() for part in (_top(line), *parts)],
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _top(line: str) -> SectionBlock:
    return SectionBlock(text=PlainTextObject(text=escape(line), emoji=True))


def body_parts(page: Page) -> list[Any]:
    """The lines under line 1; the lightest ones go where there are too many."""
    body = "\n".join(_shed([_line(page, line) for line in page.lines], BODY_LIMIT))
    return [SectionBlock(text=mrkdwn(body), expand=True)] if body else []


def command_parts(page: Page) -> list[Any]:
    """Commands to copy, where there is something to do."""
    if page.test or page.event not in ("firing", "updated"):
        return []
    texts = (page.links.ack, page.links.silence, page.links.explain)
    usable = [clean(text) for text in texts if text and len(text) <= _COMMAND_LIMIT]
    written = [harmless(text) if "`" in text else f"`{escape(text)}`" for text in usable]
    return [ContextBlock(elements=[mrkdwn("\n".join(written))])] if written else []


def button_parts(page: Page, clickable: Sequence[Button] = (), value: str = "") -> list[Any]:
    """A row of buttons: those that act, then links; none without any.

    ``value``: what a click on one that acts brings back.
    """
    elements = [
        ButtonElement(action_id=action, text=word, value=value) for action, word in clickable
    ]
    elements += [
        ButtonElement(action_id=f"open_{name}", text=word, url=url)
        for name, word in _LINKS
        if (url := getattr(page.links, name)) and len(url) <= _URL_LIMIT
    ]
    return [ActionsBlock(elements=elements)] if elements else []


def slack_time(at: datetime, today: datetime) -> str:
    """A time on the reader's own clock; UTC where Slack cannot."""
    same_day = at.date() == today.date()
    pattern = "{time}" if same_day else "{date_short_pretty} {time}"
    return f"<!date^{int(at.timestamp())}^{pattern}|{moment(at, today.date())}>"


def _line(page: Page, line: Line) -> tuple[int, str]:
    parts = [] if line.at is None else [slack_time(line.at, page.times.evaluated_at)]
    if line.text:
        parts.append(harmless(line.text))
    return line.weight, f"*{line.label}* {': '.join(parts)}"


def _shed(weighed: list[tuple[int, str]], room: int) -> list[str]:
    """The lines, in order, without the lightest ones that do not fit."""
    staying = list(weighed)
    while staying and sum(len(text) + 1 for _, text in staying) > room:
        staying.remove(min(staying, key=lambda pair: pair[0]))
    return [text for _, text in staying]


def report_blocks(document: Mapping[str, Any]) -> dict[str, Any]:
    """A weekly report: title, lines, what to do next.

    ``document``: as JSON, with ``links``.
    """
    title = cut(clean(document["week"]["title"]), _TITLE_LIMIT)
    rows, room = [], _REPORT_LIMIT
    for line in document["lines"]:
        label = f"*{line['label']}* " if line["label"] else "    "
        text = label + harmless(cut(clean(line["text"]), _REPORT_LINE_LIMIT))
        if len(text) + 1 > room:
            break
        rows.append(text)
        room -= len(text) + 1
    links = document.get("links") or {}
    where = [links["command"]] if links.get("command") else []
    parts: list[Any] = [SectionBlock(text=mrkdwn("\n".join(rows)), expand=True)]
    if where:
        text = harmless(cut(clean("; ".join(where)), _REPORT_LINE_LIMIT))
        parts.append(ContextBlock(elements=[mrkdwn(text)]))
    return {**message_of_line(title, parts), "text": harmless(clean(document["summary"]))}


ACKNOWLEDGE, SILENCE = "acknowledge", "silence_2h"
USEFUL, NOT_USEFUL = "useful", "not_useful"
_FIRING: tuple[Button, ...] = ((ACKNOWLEDGE, "Acknowledge"), (SILENCE, "Silence 2 h"))
_WHILE_TAKEN: tuple[Button, ...] = ((SILENCE, "Silence 2 h"),)
_OVER: tuple[Button, ...] = ((USEFUL, "Useful"), (NOT_USEFUL, "Not useful"))
_LINE_LIMIT, _NAME_LIMIT = 120, 40


def standing(page: Page, *, clicks: bool, value: str, is_first: bool = False) -> dict[str, Any]:
    """The one message of an incident as it stands: FIRING, ACKNOWLEDGED, RESOLVED or CLOSED.

    ``clicks``: buttons act (else commands to copy); ``value``: what a click brings back;
    ``is_first``: it says why it comes.
    """
    if page.event == "resolved":
        over = _OVER if clicks else ()
        line = marked(page, page.summary)
        return message_of_line(line, [*body_parts(page), *button_parts(page, over, value)])
    taken = page.acknowledgement
    now = page if is_first and page.event == "firing" else firing_page(page)
    acts = (_FIRING if taken is None else _WHILE_TAKEN) if clicks and not page.test else ()
    line = marked(now, now.summary) if taken is None else taken_line(now, taken)
    parts = [*body_parts(now), *([] if clicks else command_parts(now))]
    return message_of_line(line, [*parts, *button_parts(now, acts, value)])


def firing_page(page: Page) -> Page:
    """The page as of an incident that fires, whatever news it brought."""
    if page.event == "firing" and not page.repeat and page.acknowledgement is None:
        return page
    first = {"acknowledgement": None, "changed": None, "repeat": 0, "event": "firing"}
    return rendered(page.model_copy(update=first))


def taken_line(page: Page, taken: Acknowledgement) -> str:
    """``🟠 ACKNOWLEDGED by Ana 03:01 UTC · rag-8b, 8 of 8: 99 % of requests miss …``."""
    at = moment(taken.at, page.times.evaluated_at.date())
    rest = page.summary.partition(" ")[2]
    who = cut(clean(taken.by), _NAME_LIMIT)
    return cut(f"🟠 ACKNOWLEDGED by {who} {at} · {rest}", _LINE_LIMIT)


@dataclass(frozen=True, slots=True)
class Note:
    """A line of a thread."""

    text: str  # Slack's mrkdwn
    broadcast: bool = False  # the channel sees it too: somebody has to act


def note_of(about: Message) -> Note | None:
    """What the thread says of a message that is not the first: what changes a decision."""
    page = about.page
    today = page.times.evaluated_at
    at = slack_time(today, today)
    if about.event == "verified" and page.verification is not None:
        return Note(harmless(outcome_line(page.verification, today.date())))
    if about.event == "updated":
        changed = f": {harmless(clean(page.changed))}" if page.changed else ""
        return Note(f"*Changed* {at}{changed}\n{harmless(page.summary)}")
    if about.event == "firing":
        lasted = duration(max(0.0, (today - page.times.started_at).total_seconds()))
        return Note(
            f"*Still firing* {at}: for {lasted}, and nobody has acknowledged it", broadcast=True
        )
    return None
