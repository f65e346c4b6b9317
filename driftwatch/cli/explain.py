"""``driftwatch explain``: what is known of a target, and the path through the tree."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history import History
from driftwatch.cli.history_options import WINDOW_OPTIONS, history_options, json_option
from driftwatch.cli.main import EXIT_NO_VERDICT
from driftwatch.cli.options import Duration
from driftwatch.cli.printer import print_json, print_wrapped
from driftwatch.cli.target_window import TargetWindow, target_window
from driftwatch.errors import NoVerdict, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driftwatch.cli.target_window import Evaluated
    from driftwatch.incidents.incident import Incident
    from driftwatch.model import Finding, Target
    from driftwatch.notify.page import Page
    from driftwatch.pipeline.explain import Window

_TRAFFIC = timedelta(hours=1)  # of which an advice is made, at most


@click.command(name="explain")
@click.argument("target", required=False)
@click.option(
    "--window",
    "length",
    type=Duration(),
    default="10m",
    show_default=True,
    help="Length of the window.",
)
@click.option(
    "--symptom",
    type=click.Choice(["batch", "latency", "throughput", "gpu-idle"]),
    default="batch",
    show_default=True,
    help="Symptom at which the diagnosis starts; all end in the same causes.",
)
@json_option
@history_options(*WINDOW_OPTIONS)
def command(
    target: str | None, length: timedelta, symptom: str, as_json: bool, history: History
) -> None:
    """Explain the state of TARGET (host:8000, host:8000/1, a pool or an incident's id).

    Leave TARGET out where there is only one. Of a pool, driftwatch explains a server that an open
    page concerns, else the one with the longest queue; of an incident that is over, its first
    server at the moment of the page. It reads --recording, else
    --prometheus, else the database of driftwatch run. Exit code 0: answered; 4: no verdict, and
    the output names what is missing.
    """
    from driftwatch.clock import SystemClock
    from driftwatch.pipeline.explain import SYMPTOMS

    today, tree = SystemClock().now().date(), SYMPTOMS[symptom]
    target, history = _of_incident(target, history)
    with target_window(target, history, length, today=today) as scope:
        _explain(scope, tree, as_json)


_INCIDENT = re.compile(r"[0-9a-f]{4,12}")


def _of_incident(name: str | None, history: History) -> tuple[str | None, History]:
    """The first server of the incident that is named, once it is over as of its page; else what was
    given.
    """
    if name is None or not history.is_stored or _INCIDENT.fullmatch(name) is None:
        return name, history
    with history.store() as store, suppress(UsageError):
        incident = store.incident(name)
        at = history.at or (incident.firing_at if incident.resolved_at else None)
        if incident.page is not None and incident.page.servers.first:
            return incident.page.servers.first[0], replace(history, at=at)
    return name, history


def _explain(scope: TargetWindow, tree: str, as_json: bool) -> None:
    from driftwatch.notify.explanation import explanation, is_healthy
    from driftwatch.pipeline.advice import explained

    history = scope.history
    pages = [] if history.at is not None else _pages(scope.incidents, scope.target)
    evaluated = _evaluated(scope, tree, () if as_json else pages)
    window = evaluated.window
    assert evaluated.finding is not None  # noqa: S101 - evaluated() raises without one
    finding = explained(evaluated.finding, evaluated.row, history.plan, evaluated.moment)
    if as_json:
        print_json(explanation(finding, window.start, window.end).document())
    else:
        at = history.at or (None if history.is_stored else window.end)
        _print(scope, finding, window, pages, at)
    diagnosis = finding.diagnosis
    undetermined = diagnosis is not None and diagnosis.leaf == "undetermined"
    no_verdict = undetermined and not is_healthy(finding)
    click.get_current_context().exit(EXIT_NO_VERDICT if no_verdict else 0)


def _evaluated(scope: TargetWindow, tree: str, pages: Sequence[Page]) -> Evaluated:
    """The window; where it has no scrape, the open pages are printed before the error."""
    try:
        return scope.evaluated(_TRAFFIC, tree)
    except NoVerdict:
        for page in pages:
            print_wrapped(page.summary)
        raise


def _print(
    scope: TargetWindow,
    finding: Finding,
    window: Window,
    pages: Sequence[Page],
    at: datetime | None,
) -> None:
    """The answer on stdout; commands that it names look at the moment ``at``."""
    from driftwatch.cli.history_options import repeat_options
    from driftwatch.collect.identity import ALSO_LABEL
    from driftwatch.notify.explanation import render_explained
    from driftwatch.receivers.stdout import wants_colour

    name, notes = scope.target.key.text, list[str]()
    if (silent := scope.silence) is not None:
        notes.append(f"NO DATA {name}: {silent.text(scope.today)}")
    if also := scope.target.labels.get(ALSO_LABEL):
        many = also.count("; ") + 1
        scrapes = "1 more scrape" if many == 1 else f"{many} more scrapes"
        notes.append(f"READ ONCE {name}: {scrapes} of it left out: {also}")
    click.echo(
        render_explained(
            finding,
            window.start,
            window.end,
            pages=pages,
            today=scope.today,
            colour=wants_colour(sys.stdout),
            where=repeat_options(at=at),
            piped=not sys.stdout.isatty(),
            notes=notes,
        )
    )


def _pages(incidents: Sequence[Incident], target: Target) -> list[Page]:
    """The pages of firing incidents that concern the target, before tickets and notices."""
    rank = ("page", "ticket", "notice")
    own = (one.page for one in incidents if one.is_firing and target.key in one.concerned)
    return sorted((page for page in own if page), key=lambda page: rank.index(page.severity))
