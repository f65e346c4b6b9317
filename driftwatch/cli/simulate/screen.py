"""How the verbs before there is traffic print: sentences, tables and JSON on standard output."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from driftwatch.cli.output import encodable, lines
from driftwatch.errors import UsageError
from driftwatch.notify.layout import needs_ascii, spell, wrap
from driftwatch.notify.numbers import clean, figure


def echo(text: str = "") -> None:
    """A line to standard output, at once.

    Raises UsageError: a full disk; BrokenPipeError: nobody reads on.
    """
    try:
        click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        # what is buffered would fail once more when Python ends
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise unwritable("standard output", error.strerror or str(error)) from error


def unwritable(where: object, why: str) -> UsageError:
    """The error of an output that takes nothing more."""
    return UsageError(f"{where}: {why}", help_text="a folder with more room that may be written to")


def say(text: str, *, kind: str = "") -> None:
    """A sentence in 80 columns on a terminal; piped one line, behind the name of its kind."""
    spelt = spell(text, needs_ascii(sys.stdout))
    for line in wrap(spelt, 80, "  ") if sys.stdout.isatty() else [_row([kind, spelt])]:
        echo(encodable(line))


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "", gap: bool = True
) -> None:
    """A table, on a terminal under an empty line (``gap``).

    Piped each row, that of the names too, is between tabs behind the name of its kind.
    """
    if sys.stdout.isatty():
        if gap:
            echo()
        for line in lines(header, rows, rows):
            echo(line)
    else:
        rows_between_tabs([header, *rows], kind=kind)


def rows_between_tabs(rows: Sequence[Sequence[str]], *, kind: str = "") -> None:
    """Rows for a program to read."""
    for row in rows:
        echo(encodable(_row([kind, *(clean(cell) for cell in row)])))


def _row(cells: Sequence[str]) -> str:
    return "\t".join(cells[1:] if not cells[0] else cells)


def print_json(document: Any) -> None:
    """One JSON document, indented; a number that is not finite is null."""
    import orjson

    echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def number(value: float | None, times: float = 1) -> str:
    """Three digits, or unknown."""
    return "unknown" if value is None else figure(times * value)


def together(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join((", ".join(names[:-1]), names[-1]) if len(names) > 1 else names)
