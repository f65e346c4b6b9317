"""How plan, sweep, simulate and compare answer: a line, a table, JSON, a drawing."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import click
import orjson

from driftwatch.cli.options import print_note
from driftwatch.cli.output import encodable, lines, print_wrapped, write_file
from driftwatch.errors import UsageError
from driftwatch.notify.numbers import clean, figure
from driftwatch.plots.plot import WIDTH, Plot

UNKNOWN = "-"
_COLOURS = (
    "svg{--text:#1a1a1a;--line:#767676;--faint:#ddd;--c0:#0072b2;--c1:#b34700;--c2:#00795a;"
    "--c3:#a0447c;--c4:#6b6b6b;background:#fff}"
)
_TITLE_LETTERS = 46  # of a line of a title, as wide as a drawing


def _check_plot(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Refuse before the work a drawing that could not be written after it."""
    if path is None:
        return None
    if path.suffix != ".svg":
        why, cure = "the name ends in .svg", f"--plot {path.stem}.svg"
    elif not path.parent.is_dir():
        why, cure = f"no folder {path.parent}", f"mkdir -p {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why, cure = "cannot be written", "choose another folder"
    else:
        return path
    raise UsageError(f"--plot {path}: {why}", help_text=cure)


_FILE = click.Path(path_type=Path, dir_okay=False)
OUTPUT = (
    click.option("--plot", type=_FILE, callback=_check_plot, help="Draw the answer as .svg."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
)


def publish(
    flags: Mapping[str, Any],
    line: str,
    table: tuple[Sequence[str], Sequence[Sequence[str]]],
    details: Iterable[str],
    document: Mapping[str, Any],
    notes: Iterable[str],
    plots: Callable[[], Sequence[Plot]],
) -> None:
    """Print the answer, and draw it where that is asked for, by the flags of :data:`OUTPUT`.

    ``table``: header and rows; ``details``: sentences below it; ``notes``: what was assumed, on
    stderr; ``plots``: one above the other.

    Raises UsageError: the drawing cannot be written.
    """
    (header, rows), plot, notes = table, flags["plot"], list(dict.fromkeys(notes))
    if flags["as_json"]:
        document = {"schema_version": 2, "answer": line, **document, "notes": notes}
        how = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
        click.echo(orjson.dumps(document, option=how).decode())
    else:
        for note in notes:
            print_note(note)
        print_wrapped(line)
        if sys.stdout.isatty() and rows:
            click.echo("\n".join(("", *lines(header, rows, ()), "")))
        elif rows:
            for row in (header, *rows):
                click.echo(encodable("\t".join(clean(cell) for cell in row)))
        for text in details:
            print_wrapped(text)
    if plot is not None and (drawings := plots()):
        write_file(plot, _svg_file(line, drawings))


def _svg_file(title: str, plots: Sequence[Plot]) -> str:
    """One SVG file: the title, and the drawings below it, each under its own finding."""
    css = (files("driftwatch.plots") / "plot.css").read_text(encoding="utf-8")
    parts, y = [], 0.0
    for number, text in enumerate((title, *(one.title for one in plots))):
        for line in textwrap.wrap(clean(text), _TITLE_LETTERS):
            y += 16.0
            weight = "" if number else ' style="font-weight:600"'
            parts.append(f'<text x="2" y="{y:.0f}"{weight}>{escape(line)}</text>')
        y += 6.0
        if number:
            svg = str(plots[number - 1].svg)
            height = float(svg.split('viewBox="', 1)[1].split('"', 1)[0].split()[-1])
            place = f'<svg y="{y:.0f}" width="{WIDTH:.0f}" height="{height:.0f}" '
            parts.append(svg.replace('<svg class="plot" ', place, 1))
            y += height + 6.0
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {WIDTH:.0f} {y:.0f}">'
        f"<title>{escape(clean(title))}</title><style>{_COLOURS}{css}</style>{''.join(parts)}</svg>\n"
    )


def number(value: float | None, times: float = 1) -> str:
    """Three digits, or unknown."""
    return UNKNOWN if value is None else figure(times * value)
