"""The report as Markdown. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from driftwatch.report.sections import Section, below
from driftwatch.report.text import HEADER, drift_cells, many, sections, until_text

# what Markdown or a page it is shown on would read as its own
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~$@!])")


def markdown(document: Mapping[str, Any]) -> str:
    """The whole report: the top screen, then the sections below it."""
    fleet, title = document["fleet"], document["week"]["title"]
    pools, servers = many(fleet["pools"], "pool"), many(fleet["servers"], "server")
    lines = [f"# {plain(title)}", "", f"{pools}, {servers}.", ""]
    if not document["week"]["whole"]:
        lines += [f"{plain(until_text(document))}.", ""]
    for label, texts in sections(document):
        if label == "DRIFT" and document["drift"]:
            lines += ["", *table(HEADER, drift_cells(document)), ""]
            texts = [*texts]
        lines += [f"- **{label}** {plain(text)}" for text in texts]
    for section in below(document):
        lines += ["", f"## {plain(section.title)}", "", *_section(section)]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _section(section: Section) -> list[str]:
    lines = table(section.header, section.rows) if section.rows else []
    for note in section.notes:
        lines += ["", plain(note)]
    return lines[1:] if lines and lines[0] == "" else lines


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of GitHub's Markdown."""
    return [
        _row(header),
        _row("---" for _ in header),
        *(_row(plain(cell) for cell in row) for row in rows),
    ]


def _row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def plain(text: str) -> str:
    """Text that is nothing but text: a model named ``<script>`` or ``|`` stays a name.

    >>> plain("<b>|x_y")
    '\\\\<b\\\\>\\\\|x\\\\_y'
    """
    return _SPECIAL.sub(r"\\\1", text.replace("\r", " ").replace("\n", " "))
