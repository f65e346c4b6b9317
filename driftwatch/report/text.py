"""The report in a terminal: the top screen. Pure.

The layout is that of the design's mock-up, at 80 columns: labels in nine, the table in columns of
24, 24 and 13. A cell that is longer goes on below itself; nothing is cut.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from driftwatch.notify.layout import wrap
from driftwatch.report.report import Report
from driftwatch.report.words import HEADER, MOVED, head, moved_cells, sections

WIDTH, _LABEL = 80, 9
_COLUMNS = (24, 24, 13, 19)


def top_screen(report: Report, *, piped: bool = False) -> list[str]:
    """The lines of the top screen; ``piped``: tabs between cells, and nothing wrapped."""
    lines = head(report)
    for label, texts in sections(report):
        if label == MOVED and report.moved:
            rows = [HEADER, *moved_cells(report)]
            lines += ["\t".join(row) for row in rows] if piped else _table(rows)
            lines += texts
        elif piped:
            lines += [f"{label}\t{text}" for text in texts]
        else:
            for number, text in enumerate(texts):
                first = label if number == 0 else ""
                lines += wrap(f"{first:<{_LABEL}}{text}", WIDTH, " " * _LABEL)
    return lines


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in columns; a cell that is too long goes on below itself."""
    lines = []
    for row in rows:
        cells = [
            textwrap.wrap(text, width - (at < len(_COLUMNS) - 1), break_on_hyphens=False) or [""]
            for at, (text, width) in enumerate(zip(row, _COLUMNS, strict=True))
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            line = "".join(part.ljust(width) for part, width in zip(parts, _COLUMNS, strict=True))
            lines.append(line.rstrip())
    return lines
