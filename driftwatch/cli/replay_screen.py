"""What a replay prints of its events: the first pages whole, then a line each, then counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import click

from driftwatch.cli.output import encodable, print_wrapped
from driftwatch.notify.numbers import moment
from driftwatch.notify.page_values import instant
from driftwatch.receivers.sender import message_of
from driftwatch.receivers.stdout import StdoutSender

_PAGES_IN_FULL = 3
_LINES = 12  # events, the pages in full among them


class ReplayScreen:
    """The events of one replay on standard output.

    ``sender``: prints a page whole; ``whole``: every page is printed so.
    """

    def __init__(self, sender: StdoutSender, *, whole: bool) -> None:
        self._sender, self._whole = sender, whole
        self._in_full = self._printed = self._left_out = 0
        self._after_line = False
        self._notices: Counter[str] = Counter()

    def show(self, page: Mapping[str, Any]) -> None:
        """Print or count one event."""
        if self._whole:
            self._sender.send(message_of(page))
        elif page["severity"] == "notice":
            self._notices[page["alert"]] += page["event"] == "firing"
        elif self._printed == _LINES:
            self._left_out += 1
        else:
            self._printed += 1
            if page["event"] == "firing" and self._in_full < _PAGES_IN_FULL:
                self._in_full += 1
                if self._after_line:
                    click.echo()
                self._sender.send(message_of(page))
                self._after_line = False
            else:
                self._after_line = True
                at = instant(page, "evaluated_at")
                stamp = "" if at is None else f"{moment(at, None)}  "
                print_wrapped(encodable(f"{stamp}{page['summary']}"), "  ", piped_too=True)

    def close(self) -> None:
        """Print what was left out."""
        notices = ", ".join(f"{number} {alert}" for alert, number in sorted(self._notices.items()))
        parts = []
        if self._left_out:
            parts.append(f"{self._left_out} more event{'s' if self._left_out > 1 else ''}")
        if notices:
            count = self._notices.total()
            parts.append(f"{count} notice{'s' if count > 1 else ''} ({notices})")
        if parts:
            print_wrapped(f"and {', '.join(parts)}; --all prints every page", "  ", piped_too=True)
