"""``driftwatch demo --scenario``: a scenario with known truth, and what driftwatch says of it."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftwatch.cli.printer import Progress
from driftwatch.errors import UsageError
from driftwatch.numbers import plural, utc_text

if TYPE_CHECKING:
    from driftwatch.fleet.scenario.model import Effect, Scenario
    from driftwatch.fleet.truth import Fired, Line
    from driftwatch.pipeline.explain import Window

NOBODY = "no page, ticket or notice"
_PAGES_IN_FULL = 3  # pages in full


def list_scenarios() -> None:
    """Name, what happens, what should be found; piped: tab-separated, a row each."""
    from driftwatch.fleet.scenario.file import shipped_scenarios

    shipped = shipped_scenarios()
    column = max(len(scenario.name) for scenario in shipped) + 1
    for scenario in shipped:
        due = "; ".join(expected(e) for e in scenario.truth.effects) or NOBODY
        title = f"{scenario.title} (long)" if scenario.long else scenario.title
        if not sys.stdout.isatty():
            click.echo("\t".join((scenario.name, title, due)))
            continue
        first, *rest = textwrap.wrap(title, 80 - column)
        click.echo(f"{scenario.name:{column}}{first}")
        for line in rest:
            click.echo(f"{'':{column}}{line}")
        for line in textwrap.wrap(f"expected: {due}", 80 - column - 2):
            click.echo(f"{'':{column + 2}}{line}")


def write_scenario(scenario: Scenario, seed: int, folder: Path, jobs: int) -> None:
    """The scenario's recording, truth and configuration into a new folder.

    Raises:
        UsageError: the folder is there and not empty, or cannot be written to the end.
    """
    from polars.exceptions import PolarsError

    from driftwatch.fleet.generate import generate_compact
    from driftwatch.fleet.truth import CONFIGURATION, write_truth

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder}: not empty", help_text="name a folder that is not there")
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}") from error
    progress = Progress("making")
    try:
        generate_compact(scenario, seed, folder, jobs=jobs, progress=progress)
        write_truth(scenario, seed, folder)
    except (OSError, PolarsError) as error:
        # Polars does not say why a file could not be written
        why = getattr(error, "strerror", None) or "the recording could not be written to the end"
        raise UsageError(
            f"{folder}: {why}",
            help_text="what was written is not whole: make room, remove the folder, start again",
        ) from error
    finally:
        progress.close()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    click.echo(f"{folder}: {scenario.name}, seed {seed}, {size / 1e6:.3g} MB")
    words = f"-c {_word(folder / CONFIGURATION)}"
    if (baseline := _baseline(scenario)) is not None:
        words += f" --baseline {utc_text(baseline.start)}..{utc_text(baseline.end)}"
    click.echo(f"next: driftwatch replay {_word(folder)} {words}")


def play_scenario(
    scenario: Scenario,
    typed: str,
    seed: int,
    *,
    jobs: int,
    pause: float,
) -> bool:
    """Make it, run driftwatch over it, print what was injected beside what was said; whether
    nothing that was expected was missed.

    Args:
        pause: seconds after each page.
    """
    from driftwatch.cli.options import plan_from
    from driftwatch.cli.replay_summary import TakenProposals, with_proposals
    from driftwatch.collect.recordings import open_recording
    from driftwatch.fleet.generate import generate_compact
    from driftwatch.fleet.truth import CONFIGURATION, fired_incident, write_truth
    from driftwatch.receivers.sender import message_of
    from driftwatch.receivers.stdout import StdoutSender
    from driftwatch.service.replay import replay

    _print_story(scenario, seed)
    sender, proposals = StdoutSender(mark=True, stored=False), TakenProposals()
    pages: dict[str, Fired] = {}  # incident id → what its page said, with the advice that stood
    updates = 0
    with tempfile.TemporaryDirectory(prefix="driftwatch-demo-") as name:
        folder = Path(name)
        making = Progress("making")
        generate_compact(scenario, seed, folder, jobs=jobs, progress=making)
        making.close()
        write_truth(scenario, seed, folder)
        plan = with_proposals(plan_from(folder / CONFIGURATION))
        source = open_recording(folder)
        source.name = f"recording {scenario.name}"  # not the folder's, which is another each time
        span = source.span()
        reading = Progress("replaying")  # its time left is reckoned from here
        whole = (span[1] - span[0]).total_seconds()

        def advance(now: datetime) -> None:
            reading((now - span[0]).total_seconds(), whole)

        for outcome in replay([source], span, plan, baseline=_baseline(scenario), progress=advance):
            proposals.note(outcome.rows)
            for transition in outcome.transitions:
                page, incident = transition.incident.page, transition.incident.id
                if page is not None and transition.event == "updated" and incident in pages:
                    pages[incident] = replace(pages[incident], knob=fired_incident(page).knob)
                    updates += 1
                if page is None or transition.event != "firing":
                    continue
                pages[incident] = fired_incident(page)
                if len(pages) <= _PAGES_IN_FULL:
                    click.echo("-" * 80)
                    sender.send(message_of(page))
                    time.sleep(pause)
        reading.close()
        source.close()
    if len(pages) > _PAGES_IN_FULL or updates:
        later = f"{plural(updates, 'UPDATE')}, not shown" if updates else ""
        more = f"{len(pages) - _PAGES_IN_FULL} more" if len(pages) > _PAGES_IN_FULL else ""
        click.echo(f"and {', '.join(filter(None, (more, later)))}")
    click.echo("-" * 80)
    fulfilled = _print_verdict(scenario, [*pages.values()])
    again = f"driftwatch demo --scenario {_word(typed)} --seed {seed} --write DIR"
    click.echo(f"next:    {again}")
    proposals.tell()
    return fulfilled


def _print_verdict(scenario: Scenario, pages: Sequence[Fired]) -> bool:
    """Print injected beside said; whether nothing was missed."""
    from driftwatch.fleet.truth import compared

    comparison = compared(scenario, pages)
    for line in _verdict(scenario, comparison):
        click.echo(line)
    return all(line.word != "MISSED" for lines in comparison for line in lines)


def _verdict(scenario: Scenario, comparison: Sequence[Sequence[Line]]) -> Iterator[str]:
    *effects, rest = comparison
    for effect, lines in zip(scenario.truth.effects, effects, strict=True):
        yield from textwrap.wrap(_happened(scenario, effect), 80, subsequent_indent="  ")
        for line in lines:
            yield from _wrapped(line)
        if not lines:
            yield "  nobody need be told of it"
    if rest and scenario.truth.effects:
        yield "besides"
    for line in rest:
        yield from _wrapped(line)
    if not rest and not scenario.truth.effects:
        yield "  nothing was said"


def _wrapped(line: Line) -> Iterator[str]:
    text = f"  {line.word:8} {line.text}"
    yield from textwrap.wrap(text, 80, subsequent_indent=" " * 11, break_long_words=False)


def _print_story(scenario: Scenario, seed: int) -> None:
    pool = scenario.pool
    click.echo(f"{scenario.name}: {scenario.title}")
    servers = f"{scenario.servers} simulated servers" if scenario.servers > 1 else "1 server"
    hours = scenario.duration / 3600.0
    text = (
        f"{servers}, {pool.model} on {pool.gpu}, {hours:.3g} h of traffic, a scrape every "
        f"{scenario.scrape.interval:g} s, seed {seed}. driftwatch sees their pages only."
    )
    click.echo(textwrap.fill(text, 80))
    for effect in scenario.truth.effects:
        click.echo(f"  injected  {_happened(scenario, effect)}")
        click.echo(f"  expected  {expected(effect)}")
    if not scenario.truth.effects:
        click.echo(f"  injected  nothing\n  expected  {NOBODY}")


def _happened(scenario: Scenario, effect: Effect) -> str:
    from driftwatch.fleet.truth import window_of

    first, last = window_of(scenario, effect)
    until = "" if effect.until is None else f" to {last:%H:%M}"
    who = "every server" if not effect.replicas else f"{len(effect.replicas)} of them"
    return f"{first:%a %H:%M}{until} UTC: {effect.what} ({who})"


def expected(effect: Effect) -> str:
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


def _word(text: object) -> str:
    """As a shell takes it."""
    return shlex.quote(str(text))


def processes() -> int:
    """As many as there are cores for this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
