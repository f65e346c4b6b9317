"""``driftwatch demo``: play a recorded server, or simulated ones with known truth, and the page."""

from __future__ import annotations

import os
import shlex
import tempfile
import textwrap
import threading
from contextlib import suppress
from datetime import timedelta
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.main import EXIT_ANSWERED
from driftwatch.cli.options import FOLDER, flag, option
from driftwatch.cli.printer import Progress, print_table, print_wrapped
from driftwatch.errors import UsageError
from driftwatch.numbers import utc_text

if TYPE_CHECKING:
    from driftwatch.fleet.scenario.model import Effect, Scenario
    from driftwatch.pipeline.explain import Window
    from driftwatch.pipeline.state import Outcome

_STORY = """\
A real vLLM 0.32 server, recorded: 29 minutes in a few seconds. Nothing is configured; driftwatch
reads only its /metrics page. Light traffic, then more than it was tuned for; then somebody
restarts it with another setting and sends the same requests again.
"""
_END = """\
That is all the pages there were: the restart paged nobody, and the same
requests, sent again to the restarted server, wait no more.
next:    driftwatch watch http://HOST:8000/metrics --db driftwatch.db
         driftwatch recommend HOST:8000                 what to change there
         driftwatch evidence queue                      what the words mean
"""
NOBODY = "no page, ticket or notice"
_RULE = "-" * 80
_SLOW_SECONDS = 1.5  # before a line tells that it takes longer
_COMPILING = (
    "loading the simulator of vLLM's scheduler; compiling it, the first time, takes 15 to 60 s"
)


@click.command(name="demo")
@option(
    "--scenario",
    str,
    "Simulate servers with a known fault: a name of --list, or a file.yaml.",
    metavar="NAME",
)
@flag("--list listed", "List the scenarios and what is expected.")
@option("--seed", click.IntRange(min=0), "Seed of the random numbers; default: the scenario's own.")
@option(
    "--write folder",
    FOLDER,
    "Write the scenario's recording, truth and configuration here.",
    metavar="DIR",
)
def command(scenario: str | None, listed: bool, seed: int | None, folder: Path | None) -> int:
    """Play a recorded server, minute by minute, and show the page on-call gets.

    With --scenario, simulate servers with a known fault and replay their scrapes: first what was
    injected and what should be found, then the pages.
    """
    if scenario is None and (seed is not None or folder is not None):
        raise UsageError(
            "--seed and --write need --scenario", help_text="driftwatch demo --list names them"
        )
    if listed and scenario is not None:
        raise UsageError("give --list or --scenario, not both", help_text="--list shows the names")
    if listed:
        _list_scenarios()
        return EXIT_ANSWERED
    if scenario is None:
        _compile_simulator()
        _play_recorded()
        return EXIT_ANSWERED
    from driftwatch.fleet.scenario.file import scenario_named

    chosen = scenario_named(scenario)
    _compile_simulator()
    seed = chosen.seed if seed is None else seed
    if folder is not None:
        _write_scenario(chosen, seed, folder)
    else:
        _play_scenario(chosen, scenario, seed)
    return EXIT_ANSWERED


def _compile_simulator() -> None:
    """Compile the kernel, or load it; a line on standard error tells of the first."""
    from driftwatch.simulate.engine import compile_kernel

    timer = threading.Timer(_SLOW_SECONDS, click.echo, (_COMPILING,), {"err": True})
    timer.daemon = True  # an error that is not expected ends the program at once
    timer.start()
    # where memory may not be made executable, the advice says why there is none
    with suppress(MemoryError, OSError, RuntimeError):
        compile_kernel()
    timer.cancel()


def _play_recorded() -> None:
    """The recorded server."""
    from driftwatch.cli.history import plan_from
    from driftwatch.cli.replay_summary import TakenProposals, with_proposals
    from driftwatch.collect.recordings.text import RecordingSource
    from driftwatch.service.replay import replay

    proposals, stride = TakenProposals(), timedelta(minutes=3)
    click.echo(textwrap.fill(_STORY, 80) + "\n")
    recording = files("driftwatch") / "_demo" / "run_cap.jsonl.gz"
    with as_file(recording) as path:
        source = RecordingSource(path)
        plan = with_proposals(plan_from(None))
        for outcome in replay([source], source.span(), plan, stride=stride):
            proposals.note(outcome.rows)
            _show_outcome(outcome)
        click.echo("\n" + _END, nl=False)
        proposals.tell()


def _show_outcome(outcome: Outcome) -> None:
    """A line a minute, and pages as they are sent."""
    from driftwatch.notify.minute_line import minute_line
    from driftwatch.receivers.sender import message_of
    from driftwatch.receivers.stdout import StdoutSender

    sender = StdoutSender(mark=True, stored=False, options=lambda _: None)
    for row in outcome.rows.iter_rows(named=True):
        click.echo(minute_line(row))
    for transition in outcome.transitions:
        if transition.incident.page is not None:
            click.echo(_RULE)
            sender.send(message_of(transition.incident.page))
            click.echo(_RULE)


def _list_scenarios() -> None:
    """Name, what happens, what should be found."""
    from driftwatch.fleet.scenario.file import shipped_scenarios

    rows = []
    for one in shipped_scenarios():
        due = "; ".join(_expected(effect) for effect in one.truth.effects) or NOBODY
        rows.append((one.name, f"{one.title} (long)" if one.long else one.title, due))
    print_table(("NAME", "WHAT HAPPENS", "EXPECTED"), rows)


def _write_scenario(scenario: Scenario, seed: int, folder: Path) -> None:
    """The scenario's recording, truth and configuration into a new folder.

    Raises:
        UsageError: the folder is there and not empty, or cannot be written to the end.
    """
    from polars.exceptions import PolarsError

    from driftwatch.fleet.truth import CONFIGURATION

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder}: not empty", help_text="name a folder that is not there")
        _make(scenario, seed, folder)
    except (OSError, PolarsError) as error:
        # Polars does not say why a file could not be written
        why = getattr(error, "strerror", None) or "the recording could not be written to the end"
        raise UsageError(
            f"{folder}: {why}",
            help_text="what was written is not whole: make room, remove the folder, start again",
        ) from error
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    click.echo(f"{folder}: {scenario.name}, seed {seed}, {size / 1e6:.3g} MB")
    words = f"-c {shlex.quote(str(folder / CONFIGURATION))}"
    if (baseline := _baseline(scenario)) is not None:
        words += f" --baseline {utc_text(baseline.start)}..{utc_text(baseline.end)}"
    words += f" --db {shlex.quote(str(folder / 'driftwatch.db'))}"
    click.echo(f"next: driftwatch replay {shlex.quote(str(folder))} {words}")


def _make(scenario: Scenario, seed: int, folder: Path) -> None:
    from driftwatch.fleet.generate import generate_compact
    from driftwatch.fleet.truth import write_truth

    progress = Progress("making")
    try:
        generate_compact(scenario, seed, folder, jobs=_jobs(scenario), progress=progress)
        write_truth(scenario, seed, folder)
    finally:
        progress.close()


def _play_scenario(scenario: Scenario, typed: str, seed: int) -> None:
    """Make it, print what was injected and what is expected, then the pages."""
    from driftwatch.cli.history import History
    from driftwatch.cli.replay import ReplayScreen
    from driftwatch.cli.replay_summary import ScrapeCounts, with_proposals
    from driftwatch.fleet.truth import CONFIGURATION
    from driftwatch.receivers.stdout import StdoutSender

    _print_story(scenario, seed)
    sender = StdoutSender(mark=True, stored=False, options=lambda _: None)
    screen, counts = ReplayScreen(sender, whole=False), ScrapeCounts()
    click.echo(_RULE)
    with tempfile.TemporaryDirectory(prefix="driftwatch-demo-") as name:
        folder = Path(name)
        _make(scenario, seed, folder)
        history = History((folder,), baseline=_baseline(scenario), config=folder / CONFIGURATION)
        for outcome in history.outcomes(with_proposals(history.plan), None, counts):
            screen.show(outcome)
    screen.close()
    click.echo(_RULE)
    click.echo(
        f"next:    driftwatch demo --scenario {shlex.quote(typed)} --seed {seed} --write DIR"
    )
    counts.proposals.tell()


def _print_story(scenario: Scenario, seed: int) -> None:
    pool = scenario.pool
    click.echo(f"{scenario.name}: {scenario.title}")
    servers = f"{scenario.servers} simulated servers" if scenario.servers > 1 else "1 server"
    hours = scenario.duration / 3600.0
    text = (
        f"{servers}, {pool.model} on {pool.gpu}, {hours:.3g} h of traffic, a scrape every "
        f"{scenario.scrape.interval:g} s, seed {seed}. driftwatch reads their pages only."
    )
    print_wrapped(text, "", piped_too=True)
    for effect in scenario.truth.effects:
        click.echo(f"  injected  {_happened(scenario, effect)}")
        click.echo(f"  expected  {_expected(effect)}")
    if not scenario.truth.effects:
        click.echo(f"  injected  nothing\n  expected  {NOBODY}")


def _happened(scenario: Scenario, effect: Effect) -> str:
    from driftwatch.fleet.truth import window_of

    first, last = window_of(scenario, effect)
    until = "" if effect.until is None else f" to {last:%H:%M}"
    who = "every server" if not effect.replicas else f"{len(effect.replicas)} of them"
    return f"{first:%a %H:%M}{until} UTC: {effect.what} ({who})"


def _expected(effect: Effect) -> str:
    """What a perfect driftwatch would say."""
    lists = (("page", effect.pages), ("ticket", effect.tickets), ("notice", effect.notices))
    parts = [f"{severity} {', '.join(names)}" for severity, names in lists if names]
    if not parts:
        return NOBODY
    if effect.leaf is not None:
        parts.append(f"leaf {effect.leaf}")
    return "; ".join([*parts, f"change {effect.knob}" if effect.knob else "no setting helps"])


def _baseline(scenario: Scenario) -> Window | None:
    from driftwatch.pipeline.explain import Window

    baseline = scenario.truth.baseline
    if baseline is None:
        return None
    start = scenario.start
    return Window(start + timedelta(seconds=baseline.at), start + timedelta(seconds=baseline.until))


def _jobs(scenario: Scenario) -> int:
    """A process a core; one begins in a second or two: not worth it for less than a server-day."""
    if scenario.servers * scenario.duration <= 86_400:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
