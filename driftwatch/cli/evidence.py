"""``driftwatch evidence``: explain the columns."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history_options import json_option
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.printer import print_json, print_wrapped

if TYPE_CHECKING:
    from driftwatch.evidence import Column


@click.command(name="evidence")
@click.argument("words", nargs=-1, metavar="[WORDS...]")
@json_option
def command(words: tuple[str, ...], as_json: bool) -> None:
    """List the evidence columns, or those that have all WORDS.

    WORDS stand in any order in a column's name, its other names, its metrics or its meaning:
    assembly wait, tokens/s/GPU, vllm:num_requests_waiting. Exit code 1: no column has them.
    """
    click.get_current_context().exit(_list_columns(" ".join(words) or None, as_json))


def _matching(term: str | None) -> tuple[Column, ...]:
    from driftwatch.evidence import COLUMNS
    from driftwatch.evidence.search import search

    return COLUMNS if term is None else search(term, _wire)


def _list_columns(term: str | None, as_json: bool) -> int:
    """Print the columns; the exit code."""
    from dataclasses import asdict

    from driftwatch.evidence import NOT_CONTINUOUS

    columns = _matching(term)
    if as_json:
        print_json({"schema_version": 1, "columns": [asdict(column) for column in columns]})
        return EXIT_ANSWERED if columns else EXIT_PROBLEM
    piped = not sys.stdout.isatty()
    words = "" if term is None else term.lower().replace("_", " ")
    never = {n: why for n, why in NOT_CONTINUOUS.items() if words and words in n.replace("_", " ")}
    if not piped or not columns:
        for name, why in never.items():
            click.echo(f"{name}: {why}")
    for column in columns:
        sources, aliases = ", ".join(map(_wire, column.sources)), ", ".join(column.aliases)
        facts = (column.meaning, sources, column.disabled_by, aliases)
        if piped:
            click.echo("\t".join((column.name, column.unit, *facts)))
            continue
        click.echo(f"{column.name}  [{column.unit}]")
        heads = ("", "from ", "unknown when: ", "also called: ")
        for head, fact in zip(heads, facts, strict=True):
            if fact:
                print_wrapped(f"  {head}{fact}", " " * 4)
    if not columns and not never:
        _print_nearest(term or "")
        return EXIT_PROBLEM
    return EXIT_ANSWERED


def _print_nearest(term: str) -> None:
    from driftwatch.evidence.search import nearest

    names = ", ".join(column.name for column in nearest(term, _wire))
    print_wrapped(f"no column has {term!r}" + (f"; nearest: {names}" if names else ""), err=True)


def _wire(source: str) -> str:
    """The wire name of a registry column, else the input as it is called."""
    from driftwatch.collect.registry import BY_COLUMN

    if source == "any":
        return "every scrape"
    return BY_COLUMN[source].wire_name if source in BY_COLUMN else source
