"""A message as plain text: title, body, commands, links. Pure; nothing is escaped here."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

from driftwatch.notify.headline import next_command, signature
from driftwatch.notify.page import Line
from driftwatch.numbers import clean, cut, moment
from driftwatch.receivers.sender import Message

_TITLE_LIMIT, _LINE_LIMIT, _COMMAND_LIMIT, _LINK_LIMIT, _MOST_LINES = 300, 600, 300, 2048, 60


# signs of Markdown, of HTML, of mentions and of links, by look-alikes: a label must neither format,
# mention nor link. An underscore inside a word formats nothing and stays.
_LOOK_ALIKE = str.maketrans(dict(zip("*`~[]<>@#|\\", "∗ˋ∼［］‹›＠＃｜⧵", strict=True)))
OUTER_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")


def harmless(text: str) -> str:
    """Without a sign that a service would act on, whatever it takes: text, Markdown, HTML.

    >>> harmless("<b>*a*</b> @everyone max_num_seqs __x__ http://evil")
    '‹b›∗a∗‹/b› ＠everyone max_num_seqs ˍˍxˍˍ http：//evil'
    """
    plain = text.translate(_LOOK_ALIKE).replace("://", "：//")
    return OUTER_UNDERSCORE.sub("ˍ", plain)


@dataclass(frozen=True, slots=True)
class Letter:
    """A message as plain text."""

    title: str  # line 1
    body: tuple[Line, ...] = ()
    commands: tuple[str, ...] = ()  # to be copied
    links: tuple[tuple[str, str], ...] = ()  # (word, address)
    today: datetime | None = None  # when a page was made
    signature: str = ""  # id, alert and time of an incident's message

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """The body as (first words, the rest), times in UTC with their date."""
        stamps = ("" if line.at is None else moment(line.at, None) for line in self.body)
        pairs = zip(self.body, stamps, strict=True)
        return tuple((line.label, ": ".join(filter(None, (s, line.text)))) for line, s in pairs)

    @property
    def text(self) -> str:
        """The whole, without a final newline."""
        rows = [self.title, ""]
        rows += [f"{label}: {text}" if label else f"  {text}" for label, text in self.lines]
        rows += ["", *self.commands] if self.commands else []
        rows += ["", *(f"{word}: {address}" for word, address in self.links)] if self.links else []
        rows += ["", self.signature] if self.signature else []
        return "\n".join(rows)


def letter_of(message: Message) -> Letter:
    """The message, whatever it is about; every line is bounded."""
    links: dict[str, str | None] = {}
    today, signed = None, ""
    if message.kind == "report":
        title, report = str(message.report["summary"]), message.report
        body = [Line(one["label"], one["text"]) for one in report["lines"]]
        commands = [(report.get("links") or {}).get("command")]
    else:
        page, title, body = message.page, message.page.summary, list(message.page.lines)
        links = {"Open": page.links.driftwatch, "Runbook": page.links.runbook}
        today, commands = page.times.evaluated_at, [next_command(page)]
        signed = "" if page.test else signature(page)
        if page.event in ("firing", "updated"):
            commands = [page.links.ack, page.links.silence, next_command(page)]
    return Letter(
        cut(clean(title), _TITLE_LIMIT),
        tuple(
            replace(line, label=clean(line.label), text=cut(clean(line.text), _LINE_LIMIT))
            for line in body[:_MOST_LINES]
        ),
        tuple(clean(one) for one in commands if one and len(one) <= _COMMAND_LIMIT),
        tuple(
            (word, address)
            for word, address in links.items()
            if address and address.isprintable() and len(address) <= _LINK_LIMIT
        ),
        today,
        signed,
    )
