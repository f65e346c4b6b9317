"""One line of a page's body."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a page's body.

    Attributes:
        label: its first word, set bold in Slack.
        text: the rest, plain.
        at: a time that stands before the text, for a renderer that knows the reader's clock.
        weight: what is shed first where room is short (the smallest).
    """

    label: str
    text: str
    at: datetime | None = None
    weight: int = 5
