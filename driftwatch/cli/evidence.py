"""``driftwatch evidence``: explain the columns, or print one window of a recording."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.options import Time
from driftwatch.cli.output import print_json, print_wrapped
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from driftwatch.cli.history import History
    from driftwatch.evidence import Column
    from driftwatch.model import Finding


@click.command(name="evidence")
@click.argument("words", nargs=-1, metavar="[WORDS...]")
@click.option("--from", "first", type=Time(), help="With --recording: start of the window.")
@click.option("--to", "last", type=Time(), help="With --recording: end of the window.")
@click.option("--target", help="With --recording: which engine, where there are several.")
@json_option
@history_options("recording", "baseline", "serving")
def command(
    words: tuple[str, ...],
    first: datetime | None,
    last: datetime | None,
    target: str | None,
    as_json: bool,
    history: History,
) -> None:
    """List the evidence columns, those that have all WORDS, or the values of one window.

    WORDS stand in any order in a column's name, its other names, its metrics or its meaning:
    assembly wait, tokens/s/GPU, vllm:num_requests_waiting. A window counts the scrapes from --from
    to --to, both included, and nothing outside it. Exit code 1: no column has them.
    """
    term = " ".join(words) or None
    if history.is_stored:
        if first or last or target or history.baseline:
            raise UsageError("--from, --to, --target and --baseline belong to --recording")
        click.get_current_context().exit(_list_columns(term, as_json))

    from driftwatch.cli.target_window import recorded
    from driftwatch.notify.explanation import explained_json
    from driftwatch.pipeline.explain import Window, explain, measured_reference, target_named

    plan, data = history.plan, recorded(history)
    window = Window(first or data.first, last or data.last)
    if window.start >= window.end:
        raise UsageError("--from is not before --to")
    measured = measured_reference(data.collected, history.baseline, plan)
    chosen = target_named(target, data.collected.targets)
    finding = explain(data.collected, chosen, window, plan, measured)
    if as_json:
        click.echo(explained_json(finding, window.start, window.end))
        return
    _print_window(finding, _matching(term))


# p95 and its two edges are one fact: they print on one row of a terminal
_EDGES = ("_lower", "_upper")


def _print_window(finding: Finding, columns: Sequence[Column]) -> None:
    """A row a column: three digits and padded for a terminal; piped every digit between tabs, and
    a row for each bucket edge.
    """
    if not sys.stdout.isatty():
        for column in columns:
            value = finding.evidence.get(column.name)
            raw = "unknown" if value is None else str(value)
            why = finding.reasons.get(column.name, "")
            click.echo("\t".join((column.name, raw, column.unit, why)))
        return
    names = {column.name for column in columns}
    listed = [c for c in columns if not c.name.endswith(_EDGES) or c.name[:-6] not in names]
    wide = max((len(column.name) for column in listed), default=0)
    for column in listed:
        reason = finding.reasons.get(column.name)
        note = f"  ({reason})" if reason else ""
        text = f"{column.name:<{wide}}  {_text(finding, column)}{note}"
        print_wrapped(text, " " * (wide + 2))


def _text(finding: Finding, column: Column) -> str:
    """The value in three digits with its unit; a quantile as the bucket it lies in."""
    from driftwatch.notify.numbers import figure, knob

    value = finding.evidence.get(column.name)
    unit = "" if column.unit == "1" else f" {column.unit}"
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    lower = finding.evidence.get(f"{column.name}_lower")
    if lower is None:
        whole = column.name.startswith("max_num_")
        return f"{knob(value) if whole else figure(value)}{unit}"
    upper = finding.evidence.get(f"{column.name}_upper")
    if upper is None:
        return f"above {lower:g}{unit}"
    return f"in ({lower:g}, {upper:g}]{unit} (about {figure(value)})"


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
