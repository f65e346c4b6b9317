"""A block of a text that is no YAML, so that the rest of its file can be read and checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from driftwatch.errors import Problem

LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # as PyYAML counts lines
NO_DEPTH = 1 << 20  # of a line without content
# code of a problem → the keys that would mend it
_KEYS: Mapping[str, tuple[str, ...]] = {
    "no-summary": ("summary", "says"),
    "no-runbook": ("runbook_url",),
    "no-sources": ("sources",),
    **dict.fromkeys(("no-receivers", "unrouted"), ("receivers",)),
}
# codes of problems of which the name at their place would mend them, elsewhere in the files
_NAMES = frozenset((
    "unknown-alert", "unknown-tree", "unknown-node", "unknown-receiver", "unknown-pool",
    "unreachable",
))  # fmt: skip
_WORD = re.compile(r"[\w.-]+")


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


def without_follow_ups(problems: Iterable[Problem], left_out: str) -> list[Problem]:
    """Without those that a left-out block mends: the missing key or name stands in its text."""
    words = frozenset(_WORD.findall(left_out))
    return [one for one in problems if not words or not _is_mended(one, words)]


def _is_mended(problem: Problem, words: frozenset[str]) -> bool:
    if problem.code in _KEYS:
        return not words.isdisjoint(_KEYS[problem.code])
    line, start = problem.source_line or "", (problem.column or 1) - 1
    if problem.code == "missing-key":
        *_, key = problem.message.removesuffix(" is missing").split()
        return key in words or line.strip("- ") == f"{key}:"  # the block was its value
    named = _WORD.findall(line[start : start + problem.length])
    return problem.code in _NAMES and not words.isdisjoint(named)
