"""The page on an output: as on-call sees it, or as one line of JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

import orjson

from driftwatch.errors import DeliveryError
from driftwatch.notify.page import Page
from driftwatch.notify.terminal import render
from driftwatch.receivers.sender import Message


@dataclass(frozen=True, slots=True)
class StdoutSender:
    """Writes pages to a stream."""

    name: str = "stdout"  # receiver name
    json: bool = False  # one line of JSON a page instead of the terminal's form
    stream: TextIO | None = None  # where to; None = standard output, looked up at each page
    mark: bool = False  # put Slack's state mark before line 1 (``demo`` shows it as the phone does)
    stored: bool = True  # somebody may acknowledge the incidents; False for pages of history
    # of a page, what its commands need besides; None = no command can look at it
    options: Callable[[Page], str | None] = lambda _: ""

    def send(self, message: Message) -> None:
        """Write the page and flush.

        Raises DeliveryError: the output is closed or full.
        """
        stream = sys.stdout if self.stream is None else self.stream
        try:
            if self.json:
                text = orjson.dumps(message.document).decode()
            else:
                shown = {"colour": wants_colour(stream), "mark": self.mark, "stored": self.stored}
                page = message.page
                text = render(page, options=self.options(page), **shown) + "\n"
            stream.write(text + "\n")
            stream.flush()
        except (OSError, ValueError) as error:
            raise DeliveryError(f"{self.name}: {error}", permanent=False) from error


def wants_colour(stream: TextIO) -> bool:
    """A terminal, and nobody said NO_COLOR."""
    return not os.environ.get("NO_COLOR") and stream.isatty()
