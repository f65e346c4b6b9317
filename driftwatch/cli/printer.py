"""What commands print: sentences, tables, JSON and progress.

A terminal gets 80 columns and tables of its width, piped output whole lines and rows between tabs.
rich draws tables and progress; it is imported only where it draws.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from driftwatch.errors import UsageError
from driftwatch.numbers import clean, figure, utc_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import Task

WIDTH = 80
UNKNOWN = "-"
_INDENT = 10  # columns before what stands below a row
_LEAST_COLUMN = 13  # columns of a terminal that each cell keeps: a short date
_THIS_YEAR = timedelta(days=300)
_BETWEEN_ROWS = "\ue000"  # what rich draws between rows; no cell has it


def print_json(document: Mapping[str, Any], *, indent: int | None = None) -> None:
    """One document, its keys in order; on one line unless ``indent`` says how deep to indent."""
    text = json.dumps(document, sort_keys=True, allow_nan=False, default=_plain, indent=indent)
    click.echo(text)


def _plain(value: object) -> object:
    if isinstance(value, set | frozenset):  # whose order is another in each process
        return sorted(value)
    if hasattr(value, "tolist"):  # NumPy's
        return value.tolist()
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, inf_nan_mode="null")


def print_wrapped(
    text: str, indent: str = "  ", *, err: bool = False, piped_too: bool = False
) -> None:
    """Print a sentence: a terminal gets 80 columns, a pipe one line (80 columns if ``piped_too``).

    ``indent``: before each line but the first.
    """
    stream = sys.stderr if err else sys.stdout
    for line in wrapped(text, indent, piped=not (piped_too or stream.isatty())):
        click.echo(line, err=err)


def wrapped(text: str, indent: str = "  ", *, piped: bool) -> list[str]:
    """Lines of at most 80 columns; piped one line."""
    from driftwatch.notify.layout import wrap

    line = clean(text)
    return [line] if piped else wrap(line, WIDTH, indent)


def print_note(text: str) -> None:
    """Print an assumption to stderr."""
    print_wrapped(f"note: {text}", err=True)


def print_warning(text: str) -> None:
    """Print to stderr what could not be read, or contradicts itself."""
    print_wrapped(f"warning: {text}", err=True)


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    below: Sequence[str] = (),
    headed: bool = False,
) -> None:
    """Print :func:`table_lines`."""
    for line in table_lines(header, rows, below=below, headed=headed):
        click.echo(line)


def table_lines(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    below: Sequence[str] = (),
    headed: bool = False,
    is_terminal: bool | None = None,
) -> Iterator[str]:
    """Rows under their header; a cell that is too wide for the terminal goes on in the next line.

    Piped each row is whole, with tabs between its cells.

    Args:
        below: what a terminal shows under each row, empty = nothing; piped the last cell.
        headed: piped, too, with a header, and NOTE for what is below.
        is_terminal: None = ask standard output.
    """
    table = [[clean(cell) for cell in row] for row in rows]
    notes = [clean(note) for note in below] or [""] * len(table)
    is_terminal = sys.stdout.isatty() if is_terminal is None else is_terminal
    if not is_terminal:
        if table and headed:
            yield "\t".join([*header, "NOTE"] if below else header)
        for row, note in zip(table, notes, strict=True):
            yield "\t".join([*row, note] if below else row)
        return
    if table:
        yield from _drawn(header, table, notes)


def _drawn(
    header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]
) -> Iterator[str]:
    from rich.box import Box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    line = _BETWEEN_ROWS * 4
    box = Box("    \n    \n" + f"{line}\n" + "    \n" + f"{line}\n" + "    \n" * 3)
    drawn = Table(box=box, show_edge=False, show_lines=True, pad_edge=False, padding=(0, 1, 0, 0))
    drawn.header_style = ""
    width = shutil.get_terminal_size((WIDTH, 24)).columns
    # with more than its share, two columns between cells, rich would cut what it has folded
    least = min(_LEAST_COLUMN, max(1, width // len(header) - 2))
    for number, name in enumerate(header):
        widest = max(cell_len(one) for one in (name, *(row[number] for row in rows)))
        drawn.add_column(Text(name), overflow="fold", min_width=min(widest, least))
    for row in rows:
        drawn.add_row(*map(Text, row))
    console = console_of(sys.stdout, width)
    with console.capture() as captured:
        console.print(drawn)
    following = iter(("", *notes))
    for text in (*captured.get().splitlines(), _BETWEEN_ROWS):
        if not text.startswith(_BETWEEN_ROWS):
            yield text.rstrip()
        elif note := next(following):
            yield from wrapped(" " * _INDENT + note, " " * _INDENT, piped=False)


def console_of(stream: TextIO, width: int | None = None) -> Console:
    """A rich console that prints text unchanged; it obeys NO_COLOR."""
    from rich.console import Console

    return Console(
        file=stream,
        width=width,
        force_terminal=stream.isatty(),
        markup=False,
        emoji=False,
        highlight=False,
    )


class Progress:
    """Progress on stderr: a bar after one second; piped, a line every 30 seconds.

    The speed of the last half minute gives the time left. ``begin``, or a share that falls, starts
    a new estimate.
    """

    def __init__(self, label: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._label, self._clock = label, monotonic
        self._began = self._last = monotonic()
        self._share = 0.0
        self._bar: Bar | None = None

    def __call__(self, done: float, total: float) -> None:
        """Show that so much of the total is done."""
        if total <= 0:
            return
        now, share = self._clock(), min(1.0, done / total)
        if share < self._share:
            self.begin(self._label)
        self._share = share
        is_terminal = sys.stderr.isatty()
        # rich takes 40 ms to import: what ends at once needs no estimate
        if self._bar is None and now - self._began < _SHOWN_AFTER_SECONDS:
            return
        if self._bar is None:
            self._bar = self._new_bar()
        task = self._bar.tasks[0]
        if share != task.completed:
            self._bar.update(task.id, completed=share)
        if now - self._last < (_DRAWN_EVERY_SECONDS if is_terminal else _LINE_EVERY_SECONDS):
            return
        self._last = now
        if is_terminal:
            self._bar.update(task.id, left=progress_text(task))
            self._bar.refresh()
        else:
            click.echo(f"{self._label}: {progress_text(task)}", err=True)

    def begin(self, label: str) -> None:
        """Start another step."""
        self.close()
        self._label, self._share, self._began = label, 0.0, self._clock()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _new_bar(self) -> Bar:
        from rich.progress import BarColumn, Progress, TextColumn

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(30),
            TextColumn("{task.fields[left]}"),
            console=console_of(sys.stderr),
            auto_refresh=False,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            get_time=self._clock,
            disable=not sys.stderr.isatty(),
        )
        # what came before the first report (a baseline, an import) tells nothing of the speed
        bar.update(bar.add_task(self._label, total=1.0, left=""), completed=self._share)
        bar.start()
        return bar


def progress_text(task: Task) -> str:
    """``62 %, 107 s left``; without an estimate before the work has run for some seconds."""
    text, speed = f"{int(task.percentage)} %", task.speed
    if not speed or (task.elapsed or 0.0) < _ESTIMATED_AFTER_SECONDS or task.finished:
        return text
    return f"{text}, {(1.0 - task.completed) / speed:.0f} s left"


_SHOWN_AFTER_SECONDS, _ESTIMATED_AFTER_SECONDS = 1.0, 3.0
_DRAWN_EVERY_SECONDS, _LINE_EVERY_SECONDS = 0.1, 30.0


def time_text(at: datetime, now: datetime) -> str:
    """On a terminal ``02:45``, ``28 Feb 02:45`` of another day; piped with year and seconds."""
    if not sys.stdout.isatty():
        return utc_text(at.replace(microsecond=0))
    if abs(now - at) > _THIS_YEAR:
        return f"{at:%Y-%m-%d %H:%M}"
    return f"{at:%H:%M}" if at.date() == now.date() else f"{at:%d %b %H:%M}"


def id_text(id_: str) -> str:
    """An id: on a terminal eight digits, which commands take; piped all of it."""
    return id_[:8] if sys.stdout.isatty() else id_


def number(value: float | None, times: float = 1) -> str:
    """A number with three digits; - where it is unknown."""
    return UNKNOWN if value is None else figure(times * value)


def write_file(path: Path, text: str) -> None:
    """Write a file. Raises UsageError: it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def print_answer(
    as_json: bool,
    line: str,
    table: tuple[Sequence[str], Sequence[Sequence[str]]],
    details: Iterable[str],
    document: Mapping[str, Any],
    notes: Iterable[str],
) -> None:
    """Print an answer of the lab: a sentence, its table, sentences below; assumptions on stderr.

    ``table``: header and rows.
    """
    (header, rows), notes = table, list(dict.fromkeys(notes))
    if as_json:
        print_json({"schema_version": 2, "answer": line, **document, "notes": notes}, indent=2)
        return
    print_wrapped(line)
    gap = [""] if rows and sys.stdout.isatty() else []
    for text in (*gap, *table_lines(header, rows, headed=True), *gap):
        click.echo(text)
    for text in details:
        print_wrapped(text)
    for note in notes:
        print_note(note)
