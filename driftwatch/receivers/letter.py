"""What a message says, as plain text in order: for mail, and for services that take text. Pure.

Nothing is escaped here: that is the business of who writes it down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from driftwatch.notify.headline import lines as body_lines
from driftwatch.notify.page_values import Page, instant
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
    payload = message.payload
    title, rows, commands = (_page if message.kind == "incident" else _listed)(payload)
    clipped = [(clean(label), cut(clean(text), _LINE_LIMIT)) for label, text in rows]
    return Letter(
        cut(clean(title), TITLE_LIMIT),
        tuple(clipped[:_MOST_LINES]),
        tuple(clean(one) for one in commands if one and len(one) <= _COMMAND_LIMIT),
        tuple(_links(payload.get("links") or {})),
    )


Parts = tuple[str, list[tuple[str, str]], list[str | None]]


def _page(page: Page) -> Parts:
    began = instant(page, "started_at")
    dated = None if began is None else began.date()
    rows = []
    for line in body_lines(page):
        stamp = "" if line.at is None else moment(line.at, None if line.at == began else dated)
        rows.append((line.label, ": ".join(filter(None, (stamp, line.text)))))
    asks = page["event"] in _ASKS and not page["test"]
    names = ("ack", "silence", "explain") if asks else ("explain",)
    return page["summary"], rows, [] if page["test"] else [page["links"].get(n) for n in names]


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
