"""Tables: aligned and cut to the terminal's width, or whole rows between tabs when piped."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence


def printable(text: str) -> str:
    """Text without line ends, tabs and control characters: a label may hold anything.

    >>> printable("a\\tb\\x1b[31m")
    'a\\\\tb\\\\x1b[31m'
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def encodable(text: str) -> str:
    """Text as this standard output can carry it: signs spelled, ``?`` for what else it cannot."""
    from driftwatch.notify.layout import signs_spelled
    from driftwatch.notify.stdout import needs_ascii

    encoding = sys.stdout.encoding or "utf-8"
    if needs_ascii(sys.stdout):
        text = signs_spelled(text)
    return text.encode(encoding, "replace").decode(encoding)


def render(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int, mark: str = "…"
) -> list[str]:
    """Aligned lines of at most ``width`` columns; the widest column gives way first.

    A column is cut down to its header's width or eight characters, not further.
    """
    table = [list(header), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(header))]
    floors = [min(size, max(len(name), 8)) for size, name in zip(widths, header, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > width and widths != floors:
        widest = max(range(len(widths)), key=lambda i: (widths[i] > floors[i], widths[i], i))
        widths[widest] -= 1
    return [
        "  ".join(_fit(cell, size, mark) for cell, size in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]


def lines(
    header: Sequence[str], short: Sequence[Sequence[str]], full: Sequence[Sequence[str]]
) -> list[str]:
    """The lines to print: ``short`` as a table on a terminal, ``full`` between tabs when piped.

    Piped there is no header: each line is one row.
    """
    if sys.stdout.isatty():
        mark = "…" if (sys.stdout.encoding or "").lower().startswith("utf") else "..."
        width = shutil.get_terminal_size((80, 24)).columns
        printed = render(header, short, width=width, mark=mark)
    else:
        printed = ["\t".join(printable(cell) for cell in row) for row in full]
    return [encodable(line) for line in printed]


def _fit(cell: str, size: int, mark: str) -> str:
    return cell.ljust(size) if len(cell) <= size else cell[: size - len(mark)] + mark
