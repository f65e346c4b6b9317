"""``driftwatch report``: what drifted in a week, at what cost, what was done, did it work."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history import History
from driftwatch.cli.options import history_options, json_option, option, repeat_options
from driftwatch.cli.printer import print_json, write_file
from driftwatch.clock import SystemClock
from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    from driftwatch.report.material import Material
    from driftwatch.report.report import Report
    from driftwatch.report.week import Week


@click.command(name="report")
@option(
    "--week", str, "Which week (ISO 8601); default the last whole one held.", metavar="YYYY-Www"
)
@option(
    "--html",
    click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    "Write the whole report as one HTML file, - for standard output.",
)
@json_option
@history_options("recordings", "db", "pools")
def command(
    week: str | None,
    html: Path | None,
    as_json: bool,
    history: History,
) -> None:
    """Drift, its cost, what was done and whether it worked: one week, open decisions first.

    Prints the top screen. --html and --json print the whole report. The week is the last
    whole one with data; where none is whole, the one with most data.
    """
    from driftwatch.report.make import report_of
    from driftwatch.report.week import week_named

    if html == Path("-") and as_json:
        raise UsageError("one form on standard output: --html - or --json")
    chosen = None if week is None else week_named(week)
    _write(report_of(_material(history, chosen)), html, as_json)


def _material(history: History, chosen: Week | None) -> Material:
    from driftwatch.cli.database import last_scraped
    from driftwatch.cli.replay_summary import TakenProposals, with_proposals
    from driftwatch.report.week import week_held
    from driftwatch.service.report_material import gather

    plan = history.plan
    now = SystemClock().now()
    if history.is_stored and chosen is not None and chosen.start >= now:
        raise UsageError(f"--week: {chosen.name} has not begun")
    with history.store(with_proposals(plan)) as store:
        first, last = store.minutes_reach() or (now, now)
        week = chosen or week_held(first, last)
        if not history.is_stored:
            # what was closed with the last minute belongs to it
            now = max(last, last_scraped(store)) + timedelta(microseconds=1)
            TakenProposals().note_stored(store, now).tell()
            if first >= week.end or last <= week.start:
                reach = f"from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
                raise NoVerdict(
                    f"no scrape of {week.name} ({week.title})", help_text=f"scrapes reach {reach}"
                )
        found = gather(store, history.plan_of(store), week, until=min(now, week.end))
    settings = history.settings
    is_sent = settings is not None and bool(settings.receivers)
    return replace(found, options=repeat_options(), is_sent=is_sent)


def _write(report: Report, html: Path | None, as_json: bool) -> None:
    """Write each form; print the top screen where standard output is free."""
    from driftwatch.report.html import as_html
    from driftwatch.report.words import top_screen

    if html == Path("-"):
        click.echo(as_html(report), nl=False)
        return
    if html is not None:
        write_file(html, as_html(report))
        click.echo(f"{html} written", err=True)
    if as_json:
        print_json(report.document())
    else:
        width = shutil.get_terminal_size().columns
        for line in top_screen(report, width, piped=not sys.stdout.isatty()):
            click.echo(line)
