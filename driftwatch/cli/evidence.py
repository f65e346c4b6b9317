"""``driftwatch evidence``: explain the columns."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from driftwatch.cli.history_options import json_option
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.printer import print_json, print_wrapped


@click.command(name="evidence")
@click.argument("words", nargs=-1, metavar="[WORDS...]")
@json_option
def command(words: tuple[str, ...], as_json: bool) -> int:
    """List the evidence columns, or those that have all WORDS.

    WORDS stand in any order in a column's name, its other names, its metrics or its meaning:
    assembly wait, tokens/s/GPU, vllm:num_requests_waiting. Piped, a row is a column: name, unit,
    meaning, metrics, when it is unknown, other names. Exit code 1: no column has them.
    """
    from driftwatch.evidence import COLUMNS, NOT_CONTINUOUS
    from driftwatch.evidence.search import nearest, search

    term, piped = " ".join(words), not sys.stdout.isatty()
    columns = search(term, _wire) if term else COLUMNS
    if as_json:
        print_json({"schema_version": 1, "columns": [asdict(column) for column in columns]})
        return EXIT_ANSWERED if columns else EXIT_PROBLEM
    asked = term.lower().replace("_", " ")
    never = {n: why for n, why in NOT_CONTINUOUS.items() if asked and asked in n.replace("_", " ")}
    for name, why in never.items() if not columns or not piped else ():
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
    if columns or never:
        return EXIT_ANSWERED
    names = ", ".join(column.name for column in nearest(term, _wire))
    print_wrapped(f"no column has {term!r}" + (f"; nearest: {names}" if names else ""), err=True)
    return EXIT_PROBLEM


def _wire(source: str) -> str:
    """The wire name of a registry column, else the input as it is called."""
    from driftwatch.collect.registry import BY_COLUMN

    if source == "any":
        return "every scrape"
    return BY_COLUMN[source].wire_name if source in BY_COLUMN else source
