"""The page as a Slack message, and its way through an incoming webhook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from slack_sdk.models.blocks import (
    ActionsBlock,
    ButtonElement,
    ContextBlock,
    MarkdownTextObject,
    PlainTextObject,
    SectionBlock,
)

from driftwatch.errors import DeliveryError
from driftwatch.notify.body import lines
from driftwatch.notify.headline import marked
from driftwatch.notify.numbers import clean, cut, moment
from driftwatch.notify.page_values import Line, Page, evaluated
from driftwatch.notify.webhook import is_report, post

BODY_LIMIT = 900
# of a weekly report; Slack takes 3,000 characters in a section
_REPORT_LIMIT, _REPORT_LINE_LIMIT, _TITLE_LIMIT = 2900, 300, 150
TIMEOUT_SECONDS = 10

_COMMAND_LIMIT = 300
_BUTTONS = (("runbook", "Runbook"), ("driftwatch", "Open"))
# Slack's signs of formatting, by look-alikes: a label must not make bold what follows it. An
# underscore inside a word formats nothing and stays.
_LOOK_ALIKE = str.maketrans({"*": "∗", "~": "∼", "`": "ˋ"})


def blocks(page: Page) -> dict[str, Any]:
    """The message for an incoming webhook: line 1 on top, a short body, commands, links.

    Returns ``text`` (phone preview) and ``blocks``: at most four, the body at most 900 characters.
    """
    parts: list[Any] = [_top(escape(marked(page, page["summary"])))]
    body = "\n".join(_shed([_line(page, line) for line in lines(page)], BODY_LIMIT))
    if body:
        parts.append(SectionBlock(text=_mrkdwn(body), expand=True))
    if commands := _commands(page):
        parts.append(ContextBlock(elements=[_mrkdwn(commands)]))
    if buttons := _buttons(page):
        parts.append(ActionsBlock(elements=buttons))
    return _message(harmless(marked(page, page["summary"])), parts)


def _top(text: str) -> SectionBlock:
    return SectionBlock(text=PlainTextObject(text=text, emoji=True))


def _message(text: str, parts: list[Any]) -> dict[str, Any]:
    return {
        "text": text,
        "blocks": [part.to_dict() for part in parts],
        "unfurl_links": False,
        "unfurl_media": False,
    }


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
    replaced = text.translate(_LOOK_ALIKE)
    inside = [
        "ˍ" if ch == "_" and not (_is_word(replaced, at - 1) and _is_word(replaced, at + 1)) else ch
        for at, ch in enumerate(replaced)
    ]
    return escape("".join(inside))


def _is_word(text: str, at: int) -> bool:
    return 0 <= at < len(text) and (text[at].isalnum() or text[at] == "_")


def _mrkdwn(text: str) -> MarkdownTextObject:
    # verbatim: channel names, mentions and bare addresses in labels stay text
    return MarkdownTextObject(text=text, verbatim=True)


def _line(page: Page, line: Line) -> tuple[int, str]:
    parts = []
    if line.at is not None:
        today = evaluated(page).date()
        same_day = line.at.date() == today
        pattern = "{time}" if same_day else "{date_short_pretty} {time}"
        parts.append(f"<!date^{int(line.at.timestamp())}^{pattern}|{moment(line.at, today)}>")
    if line.text:
        parts.append(harmless(line.text))
    return line.weight, f"*{line.label}* {': '.join(parts)}"


def _shed(weighed: list[tuple[int, str]], room: int) -> list[str]:
    """The lines, in order, without the lightest ones that do not fit."""
    staying = list(weighed)
    while staying and sum(len(text) + 1 for _, text in staying) > room:
        staying.remove(min(staying, key=lambda pair: pair[0]))
    return [text for _, text in staying]


def _commands(page: Page) -> str:
    if page["test"] or page["event"] in ("resolved", "verified"):
        return ""
    texts = [page["links"][name] for name in ("ack", "silence", "explain")]
    usable = (clean(text) for text in texts if text and len(text) <= _COMMAND_LIMIT)
    return "\n".join(harmless(text) if "`" in text else f"`{escape(text)}`" for text in usable)


def _buttons(page: Page) -> list[Any]:
    return [
        ButtonElement(action_id=f"open_{name}", text=word, url=page["links"][name])
        for name, word in _BUTTONS
        if page["links"][name] and len(page["links"][name]) <= 3000
    ]


def report_blocks(document: Mapping[str, Any]) -> dict[str, Any]:
    """The message for an incoming webhook: title, top screen, where the whole report is.

    ``document``: the report as JSON, with ``links``.
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
    where = [f"whole report: {links['report']}"] if links.get("report") else []
    where += [links["command"]] if links.get("command") else []
    parts: list[Any] = [
        _top(escape(title)),
        SectionBlock(text=_mrkdwn("\n".join(rows)), expand=True),
    ]
    if where:
        text = harmless(cut(clean("; ".join(where)), _REPORT_LINE_LIMIT))
        parts.append(ContextBlock(elements=[_mrkdwn(text)]))
    return _message(harmless(clean(document["summary"])), parts)


@dataclass(frozen=True, slots=True)
class SlackSender:
    """Posts to an incoming webhook."""

    name: str  # receiver name, the only thing of it that errors print
    url: str = field(repr=False)  # the webhook's URL, a secret
    timeout_seconds: int = TIMEOUT_SECONDS  # time-out of the connection and of each read
    allow_link_local: bool = False  # permit link-local and metadata addresses

    def send(self, page: Mapping[str, Any]) -> None:
        """Post the page, or a weekly report, once; retries are the outbox's business.

        Raises DeliveryError: Slack did not take it.
        """
        message = report_blocks(page) if is_report(page) else blocks(page)
        failure = self._post(message)
        if failure is not None:
            # raised here, outside every handler: a library's error text holds the URL
            raise failure

    def _post(self, message: dict[str, Any]) -> DeliveryError | None:
        headers = {"Content-Type": "application/json;charset=utf-8"}
        seconds = float(self.timeout_seconds)
        limits, body = (seconds, seconds), orjson.dumps(message)
        answer = post(self.name, self.url, body, headers, limits, self.allow_link_local)
        if isinstance(answer, DeliveryError):
            return answer
        if answer.strip() != "ok":
            # a login page or a wrong address answers 200 too
            text = f"{self.name} answered 200, but not as Slack does"
            return DeliveryError(text, permanent=True)
        return None
