"""``driftwatch demo``: play a recorded server and show the page on-call gets."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import timedelta
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.main import EXIT_PROBLEM
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.pipeline.question import TargetAdvice
    from driftwatch.pipeline.state import Outcome

_STORY = """\
A real vLLM 0.32 server, recorded: 29 minutes in a few seconds. Nothing is configured; driftwatch
sees only its /metrics page. Light traffic, then more than it was tuned for; then somebody
restarts it with another setting and sends the same requests again.
"""
_END = """\
That is all the pages there were: the restart paged nobody, and the same
requests, sent again to the restarted server, wait no more.
next:    driftwatch watch http://HOST:8000/metrics      on your own server
         driftwatch recommend HOST:8000                 what to change there
         driftwatch evidence queue                      what the words mean
"""


@click.command(name="demo")
@click.option("--fast", is_flag=True, help="Do not pause between the minutes.")
@click.option(
    "--scenario",
    metavar="NAME",
    help="Simulated servers with known truth instead: a name of --list, or a file.yaml.",
)
@click.option("--list", "listed", is_flag=True, help="List the scenarios and what is expected.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of the random numbers; default: the scenario's own.",
)
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the scenario's recording, truth and configuration here.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Processes that simulate (default: one per core)."
)
def command(
    fast: bool,
    scenario: str | None,
    listed: bool,
    seed: int | None,
    folder: Path | None,
    jobs: int | None,
) -> None:
    """Play a recorded server, minute by minute, and show the page on-call gets.

    With --scenario, simulate servers with a known fault, replay their scrapes,
    and print the injected fault beside driftwatch's findings. Exit code 1: an
    expected page, ticket, notice or advice was MISSED.
    """
    _check(click.get_current_context().params)
    if listed:
        from driftwatch.cli.demo.scenario import list_scenarios

        list_scenarios()
        return
    if scenario is None:
        _play_recorded(fast)
        return
    from driftwatch.cli.demo.compiling import compile_simulator
    from driftwatch.cli.demo.scenario import play_scenario, processes, write_scenario
    from driftwatch.fleet.scenario.file import scenario_named

    compile_simulator()
    chosen = scenario_named(scenario)
    seed = chosen.seed if seed is None else seed
    if jobs is None:
        # a process takes a second or two to begin: not worth it for less than a day of servers
        jobs = processes() if chosen.servers * chosen.duration > 86_400 else 1
    if folder is not None:
        write_scenario(chosen, seed, folder, jobs)
    else:
        pause = 0.0 if fast or not sys.stdout.isatty() else 1.0
        fulfilled = play_scenario(chosen, scenario, seed, jobs=jobs, pause=pause)
        if not fulfilled:
            click.get_current_context().exit(EXIT_PROBLEM)


def _check(options: Mapping[str, Any]) -> None:
    """Refuse options that say nothing together.

    Raises:
        UsageError: with every one of them.
    """
    scenario = options["scenario"]
    of_scenario = any(options[name] is not None for name in ("seed", "jobs", "folder"))
    contradictions = (
        (
            scenario is None and of_scenario,
            "--seed, --jobs and --write need --scenario",
            "driftwatch demo --list",
        ),
        (
            options["listed"] and scenario is not None,
            "give --list or --scenario, not both",
            "--list shows the names",
        ),
    )
    if wrong := [(what, fix) for holds, what, fix in contradictions if holds]:
        raise UsageError("; ".join(w for w, _ in wrong), help_text="; ".join(f for _, f in wrong))


def _play_recorded(fast: bool) -> None:
    """The recorded server."""
    import textwrap

    from driftwatch.cli.demo.compiling import compile_simulator
    from driftwatch.cli.options import plan_from
    from driftwatch.cli.replay_summary import TakenProposals, with_proposals
    from driftwatch.collect.recordings.text import RecordingSource
    from driftwatch.service.replay import replay

    pause = 0.0 if fast or not sys.stdout.isatty() else 0.15
    proposals, stride = TakenProposals(), timedelta(minutes=3)
    click.echo(textwrap.fill(_STORY, 80) + "\n")
    compile_simulator()
    recording = files("driftwatch") / "_demo" / "run_cap.jsonl.gz"
    with as_file(recording) as path:
        source = RecordingSource(path)
        span = source.span()
        plan = with_proposals(plan_from(None))
        for outcome in replay([source], span, plan, stride=stride):
            proposals.note(outcome.rows)
            _show_outcome(outcome, pause)
        click.echo("\n" + _END, nl=False)
        proposals.tell()


def _show_outcome(outcome: Outcome, pause: float) -> None:
    """A line a minute, pages as they are sent, what an advice rests on."""
    import time

    from driftwatch.notify.minute_line import minute_line
    from driftwatch.receivers.sender import message_of
    from driftwatch.receivers.stdout import StdoutSender

    sender = StdoutSender(mark=True, stored=False)
    for row in outcome.rows.iter_rows(named=True):
        click.echo(minute_line(row))
    for transition in outcome.transitions:
        if transition.incident.page is not None:
            click.echo("-" * 80)
            sender.send(message_of(transition.incident.page))
            click.echo("-" * 80)
    for answer in outcome.advices:
        _show_basis(answer)
    time.sleep(pause)


def _show_basis(answer: TargetAdvice) -> None:
    """What the page's advice rests on, as ``driftwatch recommend`` prints it."""
    from driftwatch.cli.recommend_text import AdviceContext, basis, change_lines

    context = AdviceContext(answer.target.key.text, answer.target.labels.get("model_name"))
    click.echo("What its advice rests on (driftwatch recommend):\n")
    for line in basis(answer.answer, context):
        click.echo(line)
    if moves := answer.answer.advice.moves:
        click.echo("")
        for line in change_lines(moves, context.model):
            click.echo(line)
    click.echo("-" * 80)
