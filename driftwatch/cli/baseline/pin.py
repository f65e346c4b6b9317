"""``driftwatch baseline pin``: say that a window is good, or accept a proposal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import orjson

from driftwatch.cli.baseline.place import (
    Place,
    length_text,
    place_options,
    print_wrapped,
    span_text,
    subject_of,
)
from driftwatch.cli.database import person, written
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.options import Time, parse_time
from driftwatch.cli.past import api_options, span_of
from driftwatch.cli.proposal_notice import YOUNG
from driftwatch.clock import SystemClock
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.baselines.candidates import Candidate, Subject
    from driftwatch.baselines.material import Material
    from driftwatch.detect.baselines import Baseline
    from driftwatch.pipeline.explain import Window

_WHY_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class _Wanted:
    subject: Subject
    window: Window


@click.command(name="pin")
@click.argument("names", metavar="TARGET|POOL|PROPOSAL...", nargs=-1, required=True)
@click.option("--from", "since", type=Time(), help="Start of the window.")
@click.option("--to", "until", type=Time(), help="Its end.")
@click.option("--by", metavar="NAME", help="Who says so; default: this user.")
@click.option("--why", metavar="TEXT", default="", help="Why it is good; kept with the pin.")
@click.option(
    "--anyway",
    is_flag=True,
    help="Pin although the window holds what no baseline should; needs --why.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@api_options
@place_options("recordings", "pins", "db", "config")
def command(
    names: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    by: str | None,
    why: str,
    anyway: bool,
    as_json: bool,
    place: Place,
    **history: Any,
) -> int:
    """Pin a window of a target or a pool, or accept proposals by their ids.

    A pin takes the place of the one before it and holds until another takes its own. Exit code 1:
    the window has an incident, a restart or too few scrapes in it, and nothing was pinned.
    """
    from driftwatch.baselines.candidates import candidate
    from driftwatch.baselines.windows import Acceptance

    wrong = _contradictions(names, since, until, place, of_api=history["prometheus"] is not None)
    written(why, "--why")
    if anyway and not why.strip():
        wrong.append("--anyway needs --why TEXT")
    if len(why) > _WHY_CHARACTERS:
        wrong.append(f"--why takes at most {_WHY_CHARACTERS} characters")
    if wrong:
        raise UsageError("; ".join(wrong), help_text="driftwatch baseline pin --help")
    past = span_of({**history, "since": since, "until": until}, place.recordings)
    material = place.material(past)
    wanted = _wanted(material, names, since, until, place)
    at, who = SystemClock().now(), person(by)
    pins: list[Baseline] = []
    refusals: list[tuple[str, str]] = []
    for one in wanted:
        window = candidate(material, one.subject, one.window)
        reasons = window.refusals
        if reasons and not anyway:
            refusals += [(one.subject.name, reason) for reason in reasons]
            continue
        reason = "; ".join(
            part for part in (why or _good(window), *_override_notes(reasons)) if part
        )
        accepted = Acceptance(who, at, reason[:1000])
        pinned = window.baseline(accepted, anyway=anyway)
        if pinned is None:
            refusals += [(one.subject.name, text) for text in reasons]
        else:
            pins.append(pinned)
    if not refusals:
        _keep(pins, place)
    if as_json:
        from driftwatch.baselines.documents import document_of

        document = {
            "schema_version": 1,
            "pinned": [] if refusals else [document_of(pin) for pin in pins],
            "refused": [{"name": name, "reason": reason} for name, reason in refusals],
        }
        click.echo(json.dumps(document, sort_keys=True, allow_nan=False))
    elif refusals:
        for name, reason in refusals:
            print_wrapped(f"refused: {name}: {reason}")
        click.echo(
            "help: nothing was pinned; take another window, or --anyway --why TEXT", err=True
        )
    else:
        for pin in pins:
            _print(pin)
    return EXIT_PROBLEM if refusals else EXIT_ANSWERED


def _contradictions(
    names: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    place: Place,
    *,
    of_api: bool,
) -> list[str]:
    """Options that mean nothing together."""
    wrong: list[str] = []
    if (since is None) != (until is None):
        wrong.append("give --from and --to, or neither with the id of a proposal")
    elif since is not None and until is not None:
        if since >= until:
            wrong.append("--from is not before --to")
        if len(names) > 1:
            wrong.append("a window is pinned for one target or pool at a time")
    elif place.recordings or place.pins is not None or of_api:
        wrong.append("proposals are kept in the database only: give --from and --to")
    if not of_api and bool(place.recordings) != (place.pins is not None):
        wrong.append(
            "--recording needs --pins FILE to write to, and --pins a recording or --prometheus"
        )
    return wrong


def _wanted(
    material: Material,
    names: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    place: Place,
) -> list[_Wanted]:
    """What is to be pinned.

    Raises UsageError: a name is no target, pool or proposal.
    """
    from driftwatch.baselines.candidates import subjects
    from driftwatch.pipeline.explain import Window

    if since is not None and until is not None:
        matching = subjects(material, names[0])
        if len(matching) == 1:
            return [_Wanted(matching[0], Window(since, until))]
        listed = ", ".join(s.name for s in matching[:8] or subjects(material, None)[:8])
        raise UsageError(
            f"{names[0]!r} names {len(matching)} targets or pools", help_text=f"one of: {listed}"
        )
    with place.store() as store:
        proposals = orjson.loads(store.proposals() or b"[]")
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


def _good(window: Candidate) -> str:
    """Why the window is good, as a proposal would say it."""
    from driftwatch.cli.baseline.propose import good_because

    proposal = window.proposal
    return "" if proposal is None else good_because(proposal)


def _override_notes(reasons: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"pinned although {reason}" for reason in reasons)


def _keep(new_pins: list[Baseline], place: Place) -> None:
    """Into the file, else into the database."""
    from driftwatch.baselines.documents import exported
    from driftwatch.baselines.rows import replacing, row_of

    if place.pins is None:
        with place.store() as store:
            store.add_baselines([row_of(pin) for pin in new_pins])
        return
    pins = replacing(place.pins_of_new_file().every, new_pins)
    try:
        place.pins.write_text(exported(pins), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{place.pins}: {error.strerror or error}") from error


def _print(pin: Baseline) -> None:
    length = pin.until - pin.since
    state = "armed" if pin.model is not None else f"no load model: {pin.arming}"
    print_wrapped(
        f"pinned {pin.id} {subject_of(pin)}: {span_text(pin.since, pin.until)} "
        f"({length_text(length)}), {state}"
    )
    if length.total_seconds() < 86_400:
        print_wrapped(f"note: {YOUNG}")
