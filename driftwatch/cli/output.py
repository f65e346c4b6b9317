"""What a command prints: JSON, sentences in 80 columns, tables; the answers of the lab."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import orjson
from pydantic_core import to_jsonable_python

from driftwatch.cli.options import print_note
from driftwatch.errors import UsageError
from driftwatch.notify.layout import wrap
from driftwatch.numbers import clean, figure, utc_text

_WIDTH = 80
_INDENT = 10  # of what stands below a row
_THIS_YEAR = timedelta(days=300)


def print_json(document: Mapping[str, Any]) -> None:
    """One document on one line, its keys in order; what is stored is dumped as it is."""
    click.echo(json.dumps(document, sort_keys=True, allow_nan=False, default=_plain))


def _plain(value: object) -> object:
    if isinstance(value, set | frozenset):  # whose order is another in each process
        return sorted(value)
    return to_jsonable_python(value)


def print_wrapped(
    text: str, indent: str = "  ", *, err: bool = False, piped_too: bool = False
) -> None:
    """In 80 columns on a terminal; piped as one line."""
    stream = sys.stderr if err else sys.stdout
    line = clean(text)
    for part in wrap(line, _WIDTH, indent) if piped_too or stream.isatty() else [line]:
        click.echo(part, err=err)


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, below: Sequence[str] = ()
) -> None:
    """Print :func:`table_lines`."""
    for line in table_lines(header, rows, below=below):
        click.echo(line)


def table_lines(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    below: Sequence[str] = (),
    headed: bool = False,
    is_terminal: bool | None = None,
) -> Iterator[str]:
    """Rows under their header, cut to the terminal, the widest column first, but to no fewer than
    eight characters; piped each row whole, tabs between its cells.

    ``below``: what a terminal shows under each row, empty = nothing; piped the last cell;
    ``headed``: piped, too, with a header; ``is_terminal``: None = ask standard output.
    """
    table = [[clean(cell) for cell in row] for row in rows]
    notes = [clean(note) for note in below]
    is_terminal = sys.stdout.isatty() if is_terminal is None else is_terminal
    if table and (is_terminal or headed):
        table.insert(0, list(header))
        notes = ["", *notes] if notes else notes
    if not is_terminal:
        for number, row in enumerate(table):
            yield "\t".join([*row, *notes[number : number + 1]])
        return
    width = shutil.get_terminal_size((_WIDTH, 24)).columns
    widths = [max((len(line[i]) for line in table), default=0) for i in range(len(header))]
    floors = [min(size, max(len(name), 8)) for size, name in zip(widths, header, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > width and widths != floors:
        widest = max(range(len(widths)), key=lambda i: (widths[i] > floors[i], widths[i], i))
        widths[widest] -= 1
    for line, note in zip(table, notes or [""] * len(table), strict=True):
        cells = (_fit(cell, size) for cell, size in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip()
        yield from wrap(" " * _INDENT + note, _WIDTH, " " * _INDENT) if note else ()


def _fit(cell: str, size: int) -> str:
    return cell.ljust(size) if len(cell) <= size else f"{cell[: size - 1]}…"


def time_text(at: datetime, now: datetime) -> str:
    """On a terminal ``02:45``, ``28 Feb 02:45`` of another day; piped with year and seconds."""
    if not sys.stdout.isatty():
        return utc_text(at)
    if abs(now - at) > _THIS_YEAR:
        return f"{at:%Y-%m-%d %H:%M}"
    return f"{at:%H:%M}" if at.date() == now.date() else f"{at:%d %b %H:%M}"


def id_text(id_: str) -> str:
    """On a terminal eight digits, which are enough to name it; piped all."""
    return id_[:8] if sys.stdout.isatty() else id_


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

    ``table``: header and rows; ``details``: sentences below it; ``notes``: what was assumed, at the
    end and on stderr.
    """
    (header, rows), notes = table, list(dict.fromkeys(notes))
    if as_json:
        document = {"schema_version": 2, "answer": line, **document, "notes": notes}
        how = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
        click.echo(orjson.dumps(document, option=how).decode())
        return
    print_wrapped(line)
    gap = [""] if rows and sys.stdout.isatty() else []
    for text in (*gap, *table_lines(header, rows, headed=True), *gap):
        click.echo(text)
    for text in details:
        print_wrapped(text)
    for note in notes:
        print_note(note)


def number(value: float | None, times: float = 1) -> str:
    """Three digits, or unknown."""
    return UNKNOWN if value is None else figure(times * value)
