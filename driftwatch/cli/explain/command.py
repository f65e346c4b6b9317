"""``driftwatch explain``: what is known of a target, and the path through the tree."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli import past
from driftwatch.cli.explain.asked import (
    Answer,
    Asked,
    answer_of_recording,
    answer_of_store,
    asked_of,
    history_of_recording,
    history_of_store,
)
from driftwatch.cli.options import Duration
from driftwatch.cli.past import asked_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from driftwatch.model import Incident, Target

_EXIT_NO_VERDICT = 4


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
    help="The symptom that the tree begins with; all trees end in the same causes.",
)
@asked_options
def command(
    target: str | None, length: timedelta, symptom: str, as_json: bool, **rest: Any
) -> None:
    """Explain TARGET (host:8000, host:8000/1, or a pool): evidence, path, limits, advice.

    TARGET may be left out where there is only one; of a pool it explains the server with the
    longest queue. Without --recording and --prometheus, ./driftwatch.yaml is read where there is
    one. Exit code 0: answered; 4: no verdict, what is missing is named.
    """
    with past.asked_of(rest) as where:
        _explain(target, length, where, symptom, as_json)


def _explain(
    target: str | None, length: timedelta, where: past.Asked, symptom: str, as_json: bool
) -> None:
    from driftwatch.clock import SystemClock
    from driftwatch.diagnose.tree import UNDETERMINED
    from driftwatch.pipeline.explain import SYMPTOMS

    at, recording, plan = where.at, where.recording, where.plan
    history = (
        history_of_store(where.db, where.config, plan, at, length, where.baseline)
        if recording is None
        else history_of_recording(recording, plan, at)
    )
    asked = asked_of(
        target,
        history,
        at,
        length,
        baseline=where.baseline,
        plan=plan,
        tree=SYMPTOMS[symptom],
        today=SystemClock().now().date(),
    )
    firing = [] if at is not None else list(_firing(history.incidents, asked.target))
    if not as_json:  # above "no verdict" as well
        _print_firing(firing, asked.target, asked.today)
    answer = (
        answer_of_store(asked, where.db, where.config)
        if recording is None
        else answer_of_recording(asked, recording, where.pins)
    )
    answer = replace(answer, finding=answer.advised(asked))
    if as_json:
        _print_json(answer)
    else:
        _print_silence(asked, answer.window.end)
        _print_page(asked, answer, firing, at or (answer.window.end if recording else None))
    diagnosis = answer.finding.diagnosis
    undetermined = diagnosis is not None and diagnosis.leaf == UNDETERMINED
    click.get_current_context().exit(_EXIT_NO_VERDICT if undetermined else 0)


def _print_json(answer: Answer) -> None:
    from driftwatch.notify.explained import explained_json

    click.echo(explained_json(answer.finding, answer.window.start, answer.window.end))


def _print_silence(asked: Asked, end: datetime) -> None:
    """``NO DATA host:8000: …`` where the target was not scraped at the end."""
    from driftwatch.pipeline.explain import last_seen

    key = asked.target.key
    if (silent := last_seen(asked.history.scrapes, key, end, asked.source)) is not None:
        _print_wrapped(f"NO DATA {key.text}: {silent.text(asked.today)}")


def _print_page(
    asked: Asked, answer: Answer, firing: Sequence[Incident], at: datetime | None
) -> None:
    """The page on stdout; commands that it names look at the moment ``at``."""
    from driftwatch.cli.following import following
    from driftwatch.notify.explained import render_explained
    from driftwatch.notify.stdout import needs_ascii, wants_colour

    click.echo(
        render_explained(
            answer.finding,
            answer.window.start,
            answer.window.end,
            incidents=[incident for incident in firing if _is_own(incident, asked.target)],
            today=asked.today,
            colour=wants_colour(sys.stdout),
            ascii=needs_ascii(sys.stdout),
            where=following(click.get_current_context(), at=at),
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


def _print_firing(incidents: Sequence[Incident], target: Target, today: date) -> None:
    """``FIRING BatchLimitBinding since 02:45 UTC``, a line each."""
    from driftwatch.notify.numbers import moment

    for incident in incidents:
        whose = "" if _is_own(incident, target) else f" of pool {target.pool}"
        taken = f", taken by {incident.acknowledged_by}" if incident.acknowledged_by else ""
        began = moment(incident.started_at, today)
        _print_wrapped(f"FIRING {incident.alert}{whose} since {began}{taken}")


def _print_wrapped(text: str) -> None:
    from driftwatch.notify.layout import spell, wrap
    from driftwatch.notify.numbers import clean
    from driftwatch.notify.stdout import needs_ascii

    for line in wrap(spell(clean(text), needs_ascii(sys.stdout)), 80, "  "):
        click.echo(line)
