"""Notes on stderr: what was assumed because nobody said it."""

from __future__ import annotations

import sys
import textwrap

import click

_WIDTH = 80


def print_note(note: str) -> None:
    """In 80 columns on a terminal, one line in a pipe."""
    said = f"note: {note}"
    person = sys.stderr.isatty()
    for line in textwrap.wrap(said, _WIDTH, subsequent_indent="  ") if person else [said]:
        click.echo(line, err=True)
