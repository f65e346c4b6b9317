"""The day's digest of notices as text: rows for Slack and mail, whole for a terminal. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from driftwatch.notify.layout import paint, spell, wrap
from driftwatch.notify.numbers import clean, cut, duration, moment

# a screen: line 1, these, what is left out, the command
MOST_ROWS = 7
_LONGEST = 160
_INDENT = "  "
_SINCE = re.compile(r"^since (\d{4}-\d\d-\d\d )?\d\d:\d\d UTC ")


class Row(NamedTuple):
    """One pool's notices of one rule."""

    head: str  # pool, rule, counts
    last: str  # the last one: when, and line 1 of its page


def title(digest: Mapping[str, Any]) -> str:
    """Line 1: counts, and of which time."""
    since, until = (datetime.fromisoformat(digest[name]) for name in ("since", "until"))
    hours = duration((until - since).total_seconds())
    return f"NOTICES {_counts(digest['counts'])} ({hours} to {moment(until, None)})"


def rows(digest: Mapping[str, Any]) -> list[Row]:
    """The rows that fit on a screen."""
    today = datetime.fromisoformat(digest["until"]).date()
    return [
        Row(
            clean(f"{one['pool']} {one['alert']}: {_counts(one)}"),
            clean(f"last {moment(datetime.fromisoformat(one['last_at']), today)}: {_last(one)}"),
        )
        for one in digest["notices"][:MOST_ROWS]
    ]


def left_out(digest: Mapping[str, Any]) -> str:
    """How many notices the rows leave out; empty where they leave out none."""
    rest = digest["notices"][MOST_ROWS:]
    if not rest:
        return ""
    began, ended = (sum(one[name] for one in rest) for name in ("began", "ended"))
    pools = len({one["pool"] for one in rest})
    return f"{began} more began and {ended} ended in {pools} pool{'s' if pools > 1 else ''}"


def render_digest(
    digest: Mapping[str, Any], *, width: int = 80, colour: bool = False, ascii: bool = False
) -> str:
    """As a terminal shows it, without a final newline."""
    lines = wrap(title(digest), width, _INDENT)
    for row in rows(digest):
        lines += wrap(row.head, width, _INDENT)
        lines += wrap(_INDENT + row.last, width, _INDENT)
    if rest := left_out(digest):
        lines.append(rest)
    lines.append(f"next: {digest['links']['command']}")
    return "\n".join(paint(spell(line, ascii), colour) for line in lines)


def _counts(row: Mapping[str, Any]) -> str:
    parts = [f"{row[name]} {word}" for name, word in _WORDS if row[name]]
    return ", ".join(parts)


_WORDS = (("began", "began"), ("ended", "ended"), ("open", "still open"))


def _last(row: Mapping[str, Any]) -> str:
    """Line 1 of the last one's page, without the pool and the time that stand before it."""
    text = str(row["last"]).removeprefix(f"{row['pool']}: ")
    return cut(_SINCE.sub("", text), _LONGEST)
