"""How plan, sweep, simulate and compare answer: a line, a table, JSON, a drawing."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import click

from driftwatch.cli.output import encodable, lines
from driftwatch.errors import UsageError
from driftwatch.notify.layout import needs_ascii, spell, wrap
from driftwatch.notify.numbers import clean, figure

if TYPE_CHECKING:
    from driftwatch.plots.plot import Plot

UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb found out."""

    line: str  # the answer in one sentence
    header: tuple[str, ...]  # of the table
    rows: Sequence[Sequence[str]]
    details: Sequence[str]  # sentences below the table
    document: Mapping[str, Any]  # for ``--json``, base units in the names
    notes: Sequence[str] = ()  # what was assumed: on stderr, in JSON among the rest
    plots: Callable[[], Sequence[Plot]] = field(default=tuple)  # one above the other


def publish(answer: Answer, *, as_json: bool, plot: Path | None) -> None:
    """Print the answer, and draw it where that is asked for.

    Raises UsageError: standard output or the drawing takes nothing more.
    """
    if as_json:
        import orjson

        document = {
            "schema_version": 2,
            "answer": answer.line,
            **answer.document,
            "notes": list(answer.notes),
        }
        _echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        from driftwatch.cli.options import print_note

        for note in answer.notes:
            print_note(note)
        _say(answer.line)
        if not answer.rows:
            pass
        elif sys.stdout.isatty():
            _echo()
            for line in lines(answer.header, answer.rows, ()):
                _echo(line)
            _echo()
        else:
            for row in (answer.header, *answer.rows):
                _echo(encodable("\t".join(clean(cell) for cell in row)))
        for text in answer.details:
            _say(text)
    if plot is not None and (plots := answer.plots()):
        try:
            plot.write_text(_svg_file(answer.line, plots), encoding="utf-8")
        except OSError as error:
            raise _unwritable(f"--plot {plot}", error) from error


def check_plot(path: Path | None) -> None:
    """Refuse before the work a drawing that could not be written after it.

    Raises UsageError: the suffix says no format, there is no such folder, or it is not writable.
    """
    if path is None:
        return
    if path.suffix != ".svg":
        raise UsageError(
            f"--plot {path}: the name ends in .svg", help_text=f"--plot {path.stem}.svg"
        )
    if not path.parent.is_dir():
        raise UsageError(
            f"--plot {path}: no folder {path.parent}", help_text=f"mkdir -p {path.parent}"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--plot {path}: cannot be written", help_text="choose another folder")


_COLOURS = (
    "svg{--text:#1a1a1a;--line:#767676;--faint:#ddd;--c0:#0072b2;--c1:#b34700;--c2:#00795a;"
    "--c3:#a0447c;--c4:#6b6b6b;background:#fff}"
)
_TITLE_LETTERS = 46  # of a line of a title, as wide as a drawing


def _svg_file(title: str, plots: Sequence[Plot]) -> str:
    """One SVG file: the title, and the drawings below it, each under its own finding."""
    from driftwatch.plots.plot import WIDTH

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


def seconds(value: float | None) -> str:
    """A time with its unit."""
    if value is None:
        return "unknown"
    return f"{figure(1000 * value)} ms" if value < 1 else f"{figure(value)} s"


def together(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join((", ".join(names[:-1]), names[-1]) if len(names) > 1 else names)


def _say(text: str) -> None:
    """A sentence, in 80 columns on a terminal."""
    spelt = spell(clean(text), needs_ascii(sys.stdout))
    for line in wrap(spelt, 80, "  ") if sys.stdout.isatty() else [spelt]:
        _echo(encodable(line))


def _echo(text: str = "") -> None:
    try:
        click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        # what is buffered would fail once more when Python ends
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise _unwritable("standard output", error) from error


def _unwritable(where: str, error: OSError) -> UsageError:
    return UsageError(
        f"{where}: {error.strerror or error}",
        help_text="a folder with more room that may be written to",
    )
