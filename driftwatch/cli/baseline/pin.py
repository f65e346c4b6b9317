"""``driftwatch baseline accept``: accept a window, or a proposal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click
import orjson

from driftwatch.cli.baseline.place import accept, material_of, subject_of
from driftwatch.cli.database import person, written
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.options import parse_time
from driftwatch.cli.printer import print_json, print_wrapped
from driftwatch.cli.proposal_notice import YOUNG, span_text
from driftwatch.clock import SystemClock
from driftwatch.errors import UsageError
from driftwatch.numbers import duration

if TYPE_CHECKING:
    from driftwatch.baselines.candidates import Material, Subject
    from driftwatch.detect.baselines import Baseline
    from driftwatch.pipeline.explain import Window

_WHY_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class _Wanted:
    subject: Subject
    window: Window


@click.command(name="pin")
@click.argument("names", metavar="TARGET|POOL|PROPOSAL...", nargs=-1, required=True)
@click.option("--by", metavar="NAME", help="Who pins it; default: this user.")
@click.option("--why", metavar="TEXT", default="", help="Why it is good; kept with the baseline.")
@click.option(
    "--anyway",
    is_flag=True,
    help="Pin a window with an incident, a restart or too few scrapes too; needs --why.",
)
@json_option
@history_options("span", "prometheus", "db", "config")
def command(
    names: tuple[str, ...],
    by: str | None,
    why: str,
    anyway: bool,
    as_json: bool,
    history: History,
) -> int:
    """Pin the window --from to --to of a target or a pool, or proposals by their ids.

    The new baseline replaces the old one. Exit code 1: the window has an incident, a restart or
    too few scrapes in it, and nothing was pinned.
    """
    from driftwatch.baselines.candidates import accepted, candidate

    wrong = _contradictions(names, history)
    written(why, "--why")
    if anyway and not why.strip():
        wrong.append("--anyway needs --why TEXT")
    if len(why) > _WHY_CHARACTERS:
        wrong.append(f"--why takes at most {_WHY_CHARACTERS} characters")
    if wrong:
        raise UsageError("; ".join(wrong), help_text="driftwatch baseline accept --help")
    material = material_of(history)
    at, who = SystemClock().now(), person(by)
    pins: list[Baseline] = []
    refusals: list[tuple[str, str]] = []
    for one in _wanted(material, names, history):
        window = candidate(material, one.subject, one.window)
        baseline = accepted(window, who, at, why, anyway=anyway)
        if baseline is None:
            refusals += [(one.subject.name, reason) for reason in window.refusals]
        else:
            pins.append(baseline)
    if not refusals:
        with replace(history, prometheus=None).store() as store:
            accept(store, pins, at)
    _print([] if refusals else pins, refusals, as_json)
    return EXIT_PROBLEM if refusals else EXIT_ANSWERED


def _contradictions(names: tuple[str, ...], history: History) -> list[str]:
    """Options that mean nothing together."""
    since, until = history.since, history.until
    wrong: list[str] = []
    if (since is None) != (until is None):
        wrong.append("give --from and --to, or neither with the id of a proposal")
    elif since is not None and until is not None:
        if since >= until:
            wrong.append("--from is not before --to")
        if len(names) > 1:
            wrong.append("a window is pinned for one target or pool at a time")
    elif not history.is_stored:
        wrong.append("proposals are kept in the database only: give --from and --to")
    return wrong


def _wanted(material: Material, names: tuple[str, ...], history: History) -> list[_Wanted]:
    """What is to be accepted.

    Raises UsageError: a name is no target, pool or proposal.
    """
    from driftwatch.baselines.candidates import subjects
    from driftwatch.pipeline.explain import Window
    from driftwatch.store.baselines import PROPOSALS

    if history.since is not None and history.until is not None:
        matching = subjects(material, names[0])
        if len(matching) == 1:
            return [_Wanted(matching[0], Window(history.since, history.until))]
        listed = ", ".join(s.name for s in matching[:8] or subjects(material, None)[:8])
        raise UsageError(
            f"{names[0]!r} names {len(matching)} targets or pools", help_text=f"one of: {listed}"
        )
    with history.store() as store:
        proposals = orjson.loads(store.remembered(PROPOSALS) or b"[]")
    wanted = []
    for name in names:
        chosen = [one for one in proposals if one["id"] == name]
        if not chosen:
            raise UsageError(
                f"no proposal {name!r}",
                help_text="driftwatch baseline propose; for a window give --from and --to",
            )
        window = Window(parse_time(chosen[0]["since"]), parse_time(chosen[0]["until"]))
        wanted += [_Wanted(s, window) for s in subjects(material, chosen[0]["name"])[:1]]
    return wanted


def _print(pins: list[Baseline], refusals: list[tuple[str, str]], as_json: bool) -> None:

    if as_json:
        document = {
            "schema_version": 1,
            "pinned": [pin.model_dump(mode="json") for pin in pins],
            "refused": [{"name": name, "reason": reason} for name, reason in refusals],
        }
        print_json(document)
        return
    for name, reason in refusals:
        print_wrapped(f"refused: {name}: {reason}")
    if refusals:
        click.echo(
            "help: nothing was pinned; take another window, or --anyway --why TEXT", err=True
        )
    for pin in pins:
        seconds = (pin.until - pin.since).total_seconds()
        state = "armed" if pin.load_model is not None else f"no load model: {pin.arming}"
        print_wrapped(
            f"pinned {pin.id} {subject_of(pin)}: {span_text(pin.since, pin.until)} "
            f"({duration(seconds)}), {state}"
        )
        if seconds < 86_400:
            print_wrapped(f"note: {YOUNG}")
