"""Text on a terminal: wrapping by columns, ASCII spellings, coloured state words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rich.cells import cell_len, chop_cells

columns = cell_len  # width of a text: an emoji takes two columns, a combining mark none
_SPELLING: Mapping[str, str] = {
    "×": "x",
    "→": "->",
    "–": "-",
    "—": "-",
    "…": "...",
    "≥": ">=",
    "≤": "<=",
    "−": "-",
    "±": "+-",
    "·": "*",
}
_STATES = "🔴🟠✅⚪"  # the word behind a mark has the same meaning
_COLOURS: Mapping[str, str] = {
    "FIRING": "1;31",
    "RESOLVED": "1;32",
    "TICKET": "1;33",
    "NOTICE": "1;36",
    "TEST": "1;36",
    "undetermined": "33",
    "unknown": "33",
}
# a word, with the unit behind a number ("16 min;"), and "n" with its number
_WORD = re.compile(r"\s*(?:n (?=\d))?\S+(?:(?<=\d) (?:%|s\b|ms\b|min\b|UTC\b)\S*)?")
_COMMAND_LABEL = "next: "
_COLOURED = re.compile(r"\b(" + "|".join(_COLOURS) + r")\b")


def spelled(error: UnicodeError) -> tuple[str, int]:
    """Error handler for codecs: spells signs in ASCII, escapes the rest.

    >>> import codecs
    >>> codecs.register_error("spelled", spelled)
    >>> "✅ ×2.3, 8 → 40 é".encode("latin-1", "spelled").decode("latin-1")
    '×2.3, 8 -> 40 é'
    """
    assert isinstance(error, UnicodeEncodeError)  # noqa: S101 - streams decode nothing
    sign, end = error.object[error.start], error.start + 1
    if sign in _STATES:
        return "", end + (error.object[end : end + 1] == " ")
    return _SPELLING.get(sign) or sign.encode("ascii", "backslashreplace").decode("ascii"), end


def paint(text: str, colour: bool) -> str:
    """Colour the state words; colour adds no information."""
    if not colour:
        return text
    return _COLOURED.sub(lambda m: f"\x1b[{_COLOURS[m[1]]}m{m[1]}\x1b[0m", text)


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of at most ``width`` columns, the second and later ones indented.

    Breaks only words longer than a line, and none in a command to type. Keeps runs of spaces.

    >>> wrap("a limit  binds, 12 waiting", 12, " ")
    ['a limit', ' binds, 12', ' waiting']
    """
    indent = indent[: width * 2 // 3]
    out: list[str] = []
    line = ""
    for word in _WORD.findall(text):
        if columns(line + word) <= width:
            line += word
            continue
        if line.strip():
            out.append(line)
        line = (indent if out else "") + word.lstrip()
        while columns(line) > width and not text.startswith(_COMMAND_LABEL):
            # take at least one character: a wide one may never fit
            head = chop_cells(line, width)[0]
            head = head if len(head) > len(indent) else line[: len(indent) + 1]
            out.append(head)
            line = indent + line[len(head) :]
    return [*out, line] if line else out


def pad(text: str, width: int) -> str:
    """The text with spaces up to ``width`` columns."""
    return text + " " * max(0, width - columns(text))
