"""What a message says, as plain text in order: for mail, and for services that take text. Pure.

Nothing is escaped here: that is the business of who writes it down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from driftwatch.notify.page import Page
from driftwatch.numbers import clean, cut, moment
from driftwatch.receivers.sender import Message

TITLE_LIMIT, _LINE_LIMIT, _COMMAND_LIMIT, _MOST_LINES = 300, 600, 300, 60
_ASKS = ("firing", "updated")  # events after which something is to be done


@dataclass(frozen=True, slots=True)
class Letter:
    """A message as text."""

    title: str  # line 1
    lines: tuple[tuple[str, str], ...] = ()  # (first words, or none; the rest)
    commands: tuple[str, ...] = ()  # to be copied
    links: tuple[tuple[str, str], ...] = ()  # (word, address)

    @property
    def text(self) -> str:
        """The whole, without a final newline."""
        rows = [self.title, ""]
        rows += [f"{label}: {text}" if label else f"  {text}" for label, text in self.lines]
        rows += ["", *self.commands] if self.commands else []
        rows += ["", *(f"{word}: {address}" for word, address in self.links)] if self.links else []
        return "\n".join(rows)


def letter_of(message: Message) -> Letter:
    """The message, whatever it is about; every line is bounded."""
    if message.kind == "incident":
        title, rows, commands = _page(message.page)
        links = {"runbook": message.page.links.runbook, "driftwatch": message.page.links.driftwatch}
    else:
        title, rows, commands = _listed(message.report)
        links = message.report.get("links") or {}
    clipped = [(clean(label), cut(clean(text), _LINE_LIMIT)) for label, text in rows]
    return Letter(
        cut(clean(title), TITLE_LIMIT),
        tuple(clipped[:_MOST_LINES]),
        tuple(clean(one) for one in commands if one and len(one) <= _COMMAND_LIMIT),
        tuple(_links(links)),
    )


Parts = tuple[str, list[tuple[str, str]], list[str | None]]


def _page(page: Page) -> Parts:
    began = page.times.started_at
    rows = []
    for line in page.lines:
        dated = None if line.at == began else began.date()
        stamp = "" if line.at is None else moment(line.at, dated)
        rows.append((line.label, ": ".join(filter(None, (stamp, line.text)))))
    asks = page.event in _ASKS and not page.test
    names = ("ack", "silence", "explain") if asks else ("explain",)
    return page.summary, rows, [] if page.test else [getattr(page.links, n) for n in names]


def _listed(document: Mapping[str, Any]) -> Parts:
    """A report: a summary, lines, a command."""
    rows = [(one["label"], one["text"]) for one in document["lines"]]
    return document["summary"], rows, [(document.get("links") or {}).get("command")]


def _links(links: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    words = {"runbook": "runbook", "driftwatch": "driftwatch"}
    for name, word in words.items():
        address = links.get(name)
        if address and address.isprintable():
            yield word, address
