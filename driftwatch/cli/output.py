"""What a command prints: JSON, sentences in 80 columns, tables."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic_core import to_jsonable_python

from driftwatch.errors import UsageError
from driftwatch.notify.layout import needs_ascii, spell, wrap
from driftwatch.notify.numbers import clean

_WIDTH = 80


def print_json(document: Mapping[str, Any]) -> None:
    """One document on one line, its keys in order; what is stored is dumped as it is."""
    text = json.dumps(document, sort_keys=True, allow_nan=False, default=to_jsonable_python)
    click.echo(text)


def print_wrapped(
    text: str, indent: str = "  ", *, err: bool = False, piped_too: bool = False
) -> None:
    """In 80 columns on a terminal, in ASCII where it needs that; piped as one line."""
    stream = sys.stderr if err else sys.stdout
    line = spell(clean(text), needs_ascii(stream))
    for part in wrap(line, _WIDTH, indent) if piped_too or stream.isatty() else [line]:
        click.echo(part, err=err)


def encodable(text: str) -> str:
    """Text as this standard output can carry it."""
    return spell(text, needs_ascii(sys.stdout))


def render(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int, mark: str = "…"
) -> list[str]:
    """Aligned lines of at most ``width`` columns; the widest column gives way first.

    A column is cut down to its header's width or eight characters, not further.
    """
    table = [list(header), *([clean(cell) for cell in row] for row in rows)]
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
        width = shutil.get_terminal_size((_WIDTH, 24)).columns
        printed = render(header, short, width=width, mark=mark) if short else []
    else:
        printed = ["\t".join(clean(cell) for cell in row) for row in full]
    return [encodable(line) for line in printed]


def _fit(cell: str, size: int, mark: str) -> str:
    return cell.ljust(size) if len(cell) <= size else cell[: size - len(mark)] + mark


def write_file(path: Path, text: str, *, new: bool = False) -> None:
    """The text as a file; a ``new`` one replaces none.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        with path.open("x" if new else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
