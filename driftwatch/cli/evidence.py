"""``driftwatch evidence``: explain the columns, or print one window of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.options import Span, Time, plan_from, serving_options
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from driftwatch.evidence import Column
    from driftwatch.service.explain import Window

_EXIT_PROBLEM = 1


@click.command(name="evidence")
@click.argument("term", required=False)
@click.option("--recording", type=click.Path(path_type=Path), help="Print one window of it.")
@click.option("--from", "since", type=Time(), help="With --recording: start of the window.")
@click.option("--to", "until", type=Time(), help="With --recording: end of the window.")
@click.option("--target", help="With --recording: which engine, where there are several.")
@click.option("--baseline", type=Span(), help="With --recording: window of the reference.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@serving_options
def command(
    term: str | None,
    recording: Path | None,
    since: datetime | None,
    until: datetime | None,
    target: str | None,
    baseline: Window | None,
    as_json: bool,
    **serving: Any,
) -> None:
    """List the evidence columns, those that match TERM, or the values of one window.

    A window counts the scrapes from --from to --to, both included, and nothing outside it.
    Exit code 1: no column matches TERM.
    """
    if recording is None:
        if since or until or target or baseline:
            raise UsageError("--from, --to, --target and --baseline belong to --recording")
        click.get_current_context().exit(_list_columns(term, as_json))

    from driftwatch.cli.explain import from_recording
    from driftwatch.notify.explained import explained_json
    from driftwatch.service.explain import Window as Asked
    from driftwatch.service.explain import explain, measured_reference, target_named

    plan = plan_from(**serving)
    assert recording is not None  # noqa: S101 - the other way has exited above
    scrapes, targets, last = from_recording(recording, plan)
    start = since or scrapes["time"].min()
    end = until or last
    window = Asked(start, end)  # type: ignore[arg-type]
    if window.start >= window.end:
        raise UsageError("--from is not before --to")
    measured = measured_reference(scrapes, baseline, targets, plan)
    found = explain(scrapes, target_named(target, targets), window, targets, plan, measured)
    if as_json:
        click.echo(explained_json(found, window.start, window.end))
        return
    columns = _matching(term)
    wide = max(len(c.name) for c in columns)
    for column in columns:
        value = found.evidence.get(column.name)
        text = _value(value)
        reason = found.reasons.get(column.name)
        note = f"  ({reason})" if reason else ""
        click.echo(f"{column.name:<{wide}}  {text:>12} {_unit(column):<10}{note}".rstrip())


def _value(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _unit(column: Column) -> str:
    return "" if column.unit == "1" else column.unit


def _matching(term: str | None) -> tuple[Column, ...]:
    from driftwatch.evidence import COLUMNS, search

    return COLUMNS if term is None else search(term)


def _list_columns(term: str | None, as_json: bool) -> int:
    """Print the columns; the exit code."""
    import json
    import textwrap
    from dataclasses import asdict

    from driftwatch.evidence import NOT_CONTINUOUS

    columns = _matching(term)
    if as_json:
        rows = [asdict(column) for column in columns]
        click.echo(json.dumps({"schema_version": 1, "columns": rows}, indent=2))
        return 0 if columns else _EXIT_PROBLEM
    said = {
        name: why
        for name, why in NOT_CONTINUOUS.items()
        if term and term.lower().replace("_", " ") in name.replace("_", " ")
    }
    for name, why in said.items():
        click.echo(f"{name}: {why}")
    for column in columns:
        click.echo(f"{column.name}  [{column.unit if column.unit != '1' else column.dtype}]")
        facts = [column.meaning]
        if column.sources:
            facts.append(f"from {', '.join(_wire(s) for s in column.sources)}")
        if column.disabled_by:
            facts.append(f"unknown when: {column.disabled_by}")
        if column.aliases:
            facts.append(f"also called: {', '.join(column.aliases)}")
        for fact in facts:
            click.echo(textwrap.fill(fact, 80, initial_indent="  ", subsequent_indent="    "))
    if not columns and not said:
        click.echo(f"no column, alias or meaning contains {term!r}", err=True)
        return _EXIT_PROBLEM
    return 0


def _wire(source: str) -> str:
    """The wire name of a registry column, else the input as it is called."""
    from driftwatch.collect.registry import BY_COLUMN

    return BY_COLUMN[source].wire_name if source in BY_COLUMN else source
