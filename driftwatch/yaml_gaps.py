"""A block of a text that is no YAML, so that the rest of its file can be read and checked."""

from __future__ import annotations

import re
from collections.abc import Sequence

LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # as PyYAML counts lines
NO_DEPTH = 1 << 20  # of a line without content
# what a block that is no YAML may have mended: found beside one, none of these is a problem yet
FOLLOW_UPS = frozenset((
    "missing-key", "unknown-alert", "unknown-tree", "unknown-node", "unknown-receiver",
    "unknown-pool", "unreachable", "no-summary", "no-runbook", "no-sources", "no-receivers",
    "unrouted",
))  # fmt: skip


def depth_of(line: str) -> int:
    """How far a line is indented; of a blank line and of a comment further than any other."""
    text = line.strip()
    return len(line) - len(line.lstrip(" ")) if text and text[0] != "#" else NO_DEPTH


def block_around(depths: Sequence[int], line: int, *, outer: bool) -> range:
    """The lines of the list item or key at a line, or of the one ``outer`` to it."""
    line = next((n for n in range(min(line, len(depths) - 1), -1, -1) if depths[n] < NO_DEPTH), 0)
    if outer:
        above = (n for n in range(line - 1, -1, -1) if depths[n] < depths[line])
        if (line := next(above, -1)) < 0:
            return range(len(depths))
    end = (n for n in range(line + 1, len(depths)) if depths[n] <= depths[line])
    return range(line, next(end, len(depths)))


def without_lines(text: str, gap: range) -> str:
    """The text with the lines of a gap empty, so that the others stay where they are."""
    parts = re.split(f"({LINE_BREAK.pattern})", text)  # line, its end, line, …
    for number in gap:
        parts[2 * number] = ""
    return "".join(parts)
