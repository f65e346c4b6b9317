"""``driftwatch explain``: what is known of a target, and the path through the tree."""

from __future__ import annotations

import sys
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

import click

from driftwatch.cli.history import History
from driftwatch.cli.history_options import WINDOW_OPTIONS, history_options, json_option
from driftwatch.cli.main import EXIT_NO_VERDICT
from driftwatch.cli.options import Duration
from driftwatch.cli.printer import print_wrapped
from driftwatch.cli.target_window import TargetWindow, target_window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from driftwatch.incidents.incident import Incident
    from driftwatch.model import Finding, Target
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
    """Explain the state of TARGET (host:8000, host:8000/1, or a pool): evidence, cause, limits.

    Leave TARGET out where there is only one. Of a pool, driftwatch explains the server with the
    longest queue. It reads --recording, else --prometheus, else the database of driftwatch run.
    Exit code 0: answered; 4: no verdict, and the output names what is missing.
    """
    from driftwatch.clock import SystemClock
    from driftwatch.pipeline.explain import SYMPTOMS

    today, tree = SystemClock().now().date(), SYMPTOMS[symptom]
    with target_window(target, history, length, today=today) as scope:
        _explain(scope, tree, as_json)


def _explain(scope: TargetWindow, tree: str, as_json: bool) -> None:
    from driftwatch.diagnose.tree import UNDETERMINED
    from driftwatch.pipeline.advice import explained

    history = scope.history
    firing = [] if history.at is not None else list(_firing(scope.incidents, scope.target))
    if not as_json:  # above "no verdict" as well
        _print_firing(firing, scope.target, scope.today)
        _print_doubles(scope.target)
    evaluated = scope.evaluated(_TRAFFIC, tree)
    assert evaluated.finding is not None  # noqa: S101 - evaluated() raises without one
    window = evaluated.window
    finding = explained(evaluated.finding, evaluated.row, history.plan, evaluated.moment)
    if as_json:
        from driftwatch.notify.explanation import explained_json

        click.echo(explained_json(finding, window.start, window.end))
    else:
        if (silent := scope.silence) is not None:
            print_wrapped(f"NO DATA {scope.target.key.text}: {silent.text(scope.today)}")
        at = history.at or (None if history.is_stored else window.end)
        _print_page(scope, finding, window, firing, at)
    diagnosis = finding.diagnosis
    undetermined = diagnosis is not None and diagnosis.leaf == UNDETERMINED
    click.get_current_context().exit(EXIT_NO_VERDICT if undetermined else 0)


def _print_page(
    scope: TargetWindow,
    finding: Finding,
    window: Window,
    firing: Sequence[Incident],
    at: datetime | None,
) -> None:
    """The page on stdout; commands that it names look at the moment ``at``."""
    from driftwatch.cli.history_options import repeat_options
    from driftwatch.notify.explanation import render_explained
    from driftwatch.receivers.stdout import wants_colour

    click.echo(
        render_explained(
            finding,
            window.start,
            window.end,
            pages=[
                one.page for one in firing if one.page is not None and _is_own(one, scope.target)
            ],
            today=scope.today,
            colour=wants_colour(sys.stdout),
            where=repeat_options(at=at),
        )
    )


def _is_own(incident: Incident, target: Target) -> bool:
    named = (incident.target.get("instance"), incident.target.get("engine"))
    return named == tuple(target.key)


def _firing(incidents: Sequence[Incident], target: Target) -> Iterator[Incident]:
    """The target's own firing incidents, then those of its whole pool."""
    firing = [incident for incident in incidents if incident.state == "firing"]
    yield from (incident for incident in firing if _is_own(incident, target))
    for incident in firing:
        whole = incident.target.get("instance") is None
        if whole and target.pool and incident.target.get("pool") == target.pool:
            yield incident


def _print_doubles(target: Target) -> None:
    """Under which labels the same process is scraped once more."""
    from driftwatch.collect.identity import ALSO_LABEL

    if also := target.labels.get(ALSO_LABEL):
        many = also.count("; ") + 1
        scrapes = "1 more scrape" if many == 1 else f"{many} more scrapes"
        print_wrapped(f"READ ONCE {target.key.text}: {scrapes} of it left out: {also}")


def _print_firing(incidents: Sequence[Incident], target: Target, today: date) -> None:
    """``FIRING BatchLimitBinding since 02:45 UTC``, a line each."""
    from driftwatch.numbers import moment

    for incident in incidents:
        whose = "" if _is_own(incident, target) else f" of pool {target.pool}"
        taker = f", taken by {incident.acknowledged_by}" if incident.acknowledged_by else ""
        began = moment(incident.started_at, today)
        print_wrapped(f"FIRING {incident.alert}{whose} since {began}{taker}")
