"""How plan, sweep, simulate and compare answer: a line, a table, sentences, JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import orjson

from driftwatch.cli.options import print_note
from driftwatch.cli.output import print_wrapped, table_lines
from driftwatch.notify.numbers import figure

UNKNOWN = "-"


def publish(
    as_json: bool,
    line: str,
    table: tuple[Sequence[str], Sequence[Sequence[str]]],
    details: Iterable[str],
    document: Mapping[str, Any],
    notes: Iterable[str],
) -> None:
    """Print the answer.

    ``table``: header and rows; ``details``: sentences below it; ``notes``: what was assumed, on
    stderr.
    """
    (header, rows), notes = table, list(dict.fromkeys(notes))
    if as_json:
        document = {"schema_version": 2, "answer": line, **document, "notes": notes}
        how = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
        click.echo(orjson.dumps(document, option=how).decode())
        return
    for note in notes:
        print_note(note)
    print_wrapped(line)
    gap = [""] if rows and sys.stdout.isatty() else []
    for text in (*gap, *table_lines(header, rows, headed=True), *gap):
        click.echo(text)
    for text in details:
        print_wrapped(text)


def number(value: float | None, times: float = 1) -> str:
    """Three digits, or unknown."""
    return UNKNOWN if value is None else figure(times * value)
