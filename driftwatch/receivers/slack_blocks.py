"""Pages and reports as Slack messages: line 1, a short body, commands, buttons. Pure."""

from __future__ import annotations

from collections.abc import Sequence
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

from driftwatch.notify.headline import marked
from driftwatch.notify.page import Page
from driftwatch.numbers import moment
from driftwatch.receivers.letter import OUTER_UNDERSCORE, letter_of
from driftwatch.receivers.sender import Message, message_of

# of a report: Slack takes 3,000 characters in a section
BODY_LIMIT, _REPORT_LIMIT = 900, 2900
ACKNOWLEDGE, SILENCE = "acknowledge", "silence_2h"
USEFUL, NOT_USEFUL = "useful", "not_useful"
_WORDS = {
    ACKNOWLEDGE: "Acknowledge",
    SILENCE: "Silence 2 h",
    USEFUL: "Useful",
    NOT_USEFUL: "Not useful",
}
_SIGNS = str.maketrans({"*": "∗", "~": "∼", "`": "ˋ"})


def escape(text: str) -> str:
    """``& < >`` as Slack wants them: a label can neither mention nor link.

    >>> escape("<!channel> & co")
    '&lt;!channel&gt; &amp; co'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plain(text: str) -> str:
    """A text that neither formats, mentions nor links."""
    return escape(OUTER_UNDERSCORE.sub("ˍ", text.translate(_SIGNS)))


def mrkdwn(text: str) -> MarkdownTextObject:
    """A text with our own formatting; ``verbatim``: names and addresses in labels stay text."""
    return MarkdownTextObject(text=text, verbatim=True)


def slack_time(at: datetime, today: datetime) -> str:
    """A time on the reader's own clock; UTC where Slack cannot."""
    same_day = at.date() == today.date()
    pattern = "{time}" if same_day else "{date_short_pretty} {time}"
    return f"<!date^{int(at.timestamp())}^{pattern}|{moment(at, today.date())}>"


def blocks(page: Page) -> dict[str, Any]:
    """The message for an incoming webhook, with commands in place of buttons that act."""
    return message_blocks(message_of(page))


def message_blocks(message: Message, *, clicks: bool = False) -> dict[str, Any]:
    """``text`` (the phone's preview) and ``blocks`` of a message; nothing in it unfurls.

    ``clicks``: buttons act and bring back the incident's id, else there are commands to copy.
    """
    letter, is_page = letter_of(message), message.kind == "incident"
    line = marked(message.page, letter.title) if is_page else letter.title
    weighed, today = [], letter.today
    for one in letter.body:
        stamp = "" if one.at is None or today is None else slack_time(one.at, today)
        text = ": ".join(filter(None, (stamp, plain(one.text))))
        weighed.append((one.weight, f"*{one.label}* {text}" if one.label else f"    {text}"))
    limit = BODY_LIMIT if is_page else _REPORT_LIMIT
    while weighed and sum(len(text) + 1 for _, text in weighed) > limit:
        # the lightest line goes; of a report, whose lines weigh the same, the last one
        weighed.remove(min(reversed(weighed), key=lambda pair: pair[0]))
    parts: list[Any] = [SectionBlock(text=PlainTextObject(text=escape(line), emoji=True))]
    if weighed:
        body = "\n".join(text for _, text in weighed)
        parts.append(SectionBlock(text=mrkdwn(body), expand=True))
    acts = _acts(message.page) if clicks and is_page else ()
    acted = clicks and is_page
    written = [plain(letter.signature)] if letter.signature else []
    if message.event not in ("resolved", "verified"):
        # beside buttons that act: the id, for whoever acts elsewhere
        shown = [c for c in letter.commands if not (acted and c == message.page.links.silence)]
        written += [plain(c) if "`" in c else f"`{escape(c)}`" for c in shown]
    if written:
        parts.append(ContextBlock(elements=[mrkdwn("\n".join(written))]))
    buttons = [ButtonElement(action_id=a, text=_WORDS[a], value=message.subject) for a in acts]
    for word, url in letter.links:
        buttons.append(ButtonElement(action_id=f"link_{word.lower()}", text=word, url=url))
    if buttons:
        parts.append(ActionsBlock(elements=buttons))
    drawn = [part.to_dict() for part in parts]
    return {"text": plain(line), "blocks": drawn, "unfurl_links": False, "unfurl_media": False}


def _acts(page: Page) -> Sequence[str]:
    """The buttons that act, by what can be done."""
    if page.test:
        return ()
    if page.event in ("resolved", "verified"):
        return (USEFUL, NOT_USEFUL)
    return (ACKNOWLEDGE, SILENCE) if page.acknowledgement is None else (SILENCE,)


def note_of(message: Message) -> dict[str, Any] | None:
    """The note in the thread for a message after the first: what changes a decision.

    The channel sees it too where somebody has to act.
    """
    if message.event == "resolved":
        return None
    page, text = message.page, plain(message.page.summary)
    if page.changed is not None:
        at = slack_time(page.times.evaluated_at, page.times.evaluated_at)
        text = f"*Changed* {at}: {plain(page.changed)}\n{text}"
    drawn = [SectionBlock(text=mrkdwn(text)).to_dict()]
    asks = message.event != "verified" and page.acknowledgement is None
    return {"text": text, "blocks": drawn, **({"reply_broadcast": True} if asks else {})}
