"""``driftwatch baseline``: the windows that speed and lengths are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.database import person, written
from driftwatch.cli.history import History
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_NO_VERDICT, EXIT_PROBLEM, Group
from driftwatch.cli.options import flag, history_options, json_option, option, repeat_options
from driftwatch.cli.printer import print_json, print_note, print_table, print_wrapped
from driftwatch.cli.replay_summary import LONG_ENOUGH, YOUNG, span_text
from driftwatch.clock import SystemClock
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.numbers import duration, plural, utc_text

if TYPE_CHECKING:
    from driftwatch.baselines.candidates import Material, Offer, Subject
    from driftwatch.baselines.proposals import Proposal
    from driftwatch.detect.baselines import Baseline
    from driftwatch.pipeline.explain import Window

_MOST_READ = 200  # targets without a baseline whose minutes are read; the others are counted
_LEFT_OUT = 6  # stretches that are printed
_LISTED = 8  # names in an error
_WHY_CHARACTERS = 500
_HEADER = ("ID", "OF", "FROM UTC", "LENGTH", "BY", "STATE")
_SHADOWED = "not in force: each of its servers has a baseline of its own"
_UNFIT = "no minute is fit for a baseline"


@click.group(cls=Group)
def command() -> None:
    """What speed and lengths are compared with; only a person changes it, with accept."""


@command.command("list")
@click.argument("name", metavar="[ID|SERVER|POOL]", required=False)
@json_option
@history_options("recordings", "prometheus", "span", "db", "config")
def list_command(name: str | None, as_json: bool, history: History) -> int:
    """List the baselines in force, and propose one for each server without.

    A proposal is the best window of the last two days (--recording, --prometheus: of all of it).
    With a name: that baseline (--json: its models too), and the window that driftwatch would
    propose now, with what it leaves out. Changes nothing. Piped, a row is a baseline or a proposal:
    id (of a baseline), server or pool, from, length, by, state. Exit code 4: there is no baseline
    and no window is fit for one.
    """
    from driftwatch.baselines.candidates import Subject, offer, subjects, without_baseline

    material = _material(history)
    baselines, more = material.baselines.every, 0
    if name is None and history.is_stored:
        lacking = without_baseline(material)
        wanted = [Subject("target", (one,)) for one in lacking[:_MOST_READ]]
        more = len(lacking) - len(wanted)
    else:
        baselines, wanted = _named(baselines, name), subjects(material, name)
        if not baselines and not wanted:
            raise _unknown(f"no baseline, server or pool {name!r}", material)
    offers = [offer(material, subject) for subject in wanted]
    notes = _notes(baselines, material)
    if as_json:
        in_force = [{**one.document(), "note": notes.get(one.id)} for one in baselines]
        proposals = [_document(one) for one in offers]
        print_json(
            {"schema_version": 2, "in_force": in_force, "proposals": proposals, "more": more}
        )
    else:
        of = None if name is None and history.is_stored else history
        _print(baselines, offers, notes, of)
        if more:
            print_note(f"{plural(more, 'server')} more without a baseline")
    return EXIT_ANSWERED if baselines or any(one.is_fit for one in offers) else EXIT_NO_VERDICT


@command.command("accept")
@click.argument("names", metavar="SERVER|POOL...", nargs=-1, required=True)
@option("--by", str, "Who accepts it; default: this user.", metavar="NAME")
@option("--why", str, "Why it is good; kept with the baseline.", metavar="TEXT", default="")
@flag(
    "--anyway", "Accept a window with an incident, a restart or too few scrapes too; needs --why."
)
@json_option
@history_options("span", "prometheus", "db", "config")
def accept_command(
    names: tuple[str, ...], by: str | None, why: str, anyway: bool, as_json: bool, history: History
) -> int:
    """Accept what `baseline list` proposes for servers or pools, or the window --from to --to.

    The new baseline replaces the old one; a pool's holds for its servers without their own. Where
    each has its own, POOL accepts one for each.
    Exit code 1: the window has an incident, a restart or too few scrapes in it, and nothing was
    accepted.
    """
    from driftwatch.baselines.candidates import accepted, candidate

    _refuse_contradictions(names, written(why, "--why"), anyway, history)
    material = _material(history)
    at, who = SystemClock().now(), person(by)
    baselines: list[Baseline] = []
    refusals: list[dict[str, str]] = []
    for subject, window in _wanted(material, names, history):
        wanted = candidate(material, subject, window)
        baseline = accepted(wanted, who, at, why, anyway=anyway)
        if baseline is None:
            refusals += [{"name": subject.name, "reason": reason} for reason in wanted.refusals]
        else:
            baselines.append(baseline)
    baselines = [] if refusals else baselines
    with replace(history, prometheus=None).store() as store, store.one_transaction():
        store.add_baselines(baselines)
        for one in baselines:
            store.note_action("accept baseline", who, at, subject=one.id)
    if as_json:
        documents = [one.document() for one in baselines]
        print_json({"schema_version": 2, "accepted": documents, "refused": refusals})
    notes = _notes(baselines, material)
    for one in [] if as_json else baselines:
        span = f"{span_text(one.since, one.until)} ({duration(one.length.total_seconds())})"
        print_wrapped(f"baseline {one.id} of {one.subject}: {span}, {_state(one, notes)}")
        if one.length < LONG_ENOUGH:
            print_note(YOUNG)
    for refused in [] if as_json else refusals:
        print_wrapped(f"refused: {refused['name']}: {refused['reason']}")
    if refusals and not as_json:
        print_wrapped(
            "help: nothing was accepted; take another window, or --anyway --why TEXT", err=True
        )
    return EXIT_PROBLEM if refusals else EXIT_ANSWERED


def _notes(baselines: Sequence[Baseline], material: Material) -> dict[str, str]:
    """Id → why a baseline is not in force, or what changed since."""
    from driftwatch.baselines.candidates import each_has_own
    from driftwatch.baselines.in_force import notes_on

    notes = notes_on(material.baselines, material.targets, material.ran)
    for one in baselines:
        members = [of for of in material.targets.values() if of.pool == one.pool]
        if one.scope == "pool" and members and each_has_own(material, members):
            notes[one.id] = _SHADOWED
    return notes


def _refuse_contradictions(
    names: tuple[str, ...], why: str, anyway: bool, history: History
) -> None:
    """Raises UsageError: options that mean nothing together, all at once."""
    since, until = history.since, history.until
    of_window = since is not None and until is not None
    contradictions = {
        "give --from and --to, or neither": (since is None) != (until is None),
        "--from is not before --to": since is not None and until is not None and since >= until,
        "a window is accepted for one server or pool at a time": of_window and len(names) > 1,
        "with --prometheus give --from and --to": not of_window and not history.is_stored,
        "--anyway needs --why TEXT": anyway and not why.strip(),
        f"--why takes at most {_WHY_CHARACTERS} characters": len(why) > _WHY_CHARACTERS,
    }
    if wrong := [text for text, holds in contradictions.items() if holds]:
        raise UsageError("; ".join(wrong), help_text="driftwatch baseline accept --help")


def _material(history: History) -> Material:
    """Minutes, targets and baselines of an API's past or of recordings, else of the database.

    Raises NoVerdict: there is no minute, and no baseline either.
    """
    from driftwatch.baselines.candidates import material_of_replayed, material_of_store

    if history.is_stored or history.recordings:
        history = replace(history, since=None, until=None)
    with history.store() as store:
        of = material_of_store if history.is_stored else material_of_replayed
        material = of(store, history.plan_of(store))
    if material.until is None and not material.baselines.every:
        where = "the database holds no minute yet" if history.is_stored else "no whole minute"
        raise NoVerdict(where, help_text="driftwatch run -c driftwatch.yaml")
    return material


def _wanted(
    material: Material, names: tuple[str, ...], history: History
) -> Iterator[tuple[Subject, Window]]:
    """What is to be accepted: the window that was given, else the one that each name is offered.

    Raises UsageError: a name is no target or pool, or has no window.
    """
    from driftwatch.baselines.candidates import offer, subjects
    from driftwatch.pipeline.explain import Window

    for name in names:
        matching = subjects(material, name)
        if not matching:
            raise _unknown(f"{name!r} names no server or pool", material)
        for subject in matching:
            if history.since is not None and history.until is not None:
                yield subject, Window(history.since, history.until)
                continue
            proposal, of = offer(material, subject).proposal, subject.name
            if proposal is None:
                raise UsageError(
                    f"{of}: {_UNFIT}", help_text=f"driftwatch baseline list {of} says why"
                )
            yield subject, Window(proposal.since, proposal.until)


def _unknown(message: str, material: Material) -> UsageError:
    known = [key.text for key in sorted(material.targets)]
    known += sorted({one.pool for one in material.targets.values() if one.pool})
    return UsageError(message, help_text=f"one of: {', '.join(known[:_LISTED])}")


def _named(baselines: Sequence[Baseline], name: str | None) -> Sequence[Baseline]:
    """Baselines by the begin of an id, else of the target or pool."""
    if name is None:
        return baselines
    by_id = [one for one in baselines if one.id.startswith(name)]
    return by_id or [one for one in baselines if name in (one.subject, one.instance)]


def _document(one: Offer) -> dict[str, Any]:
    """An offer as JSON has it; unknown is null."""
    document = {**asdict(one), "subject": None, "proposal": None}
    del document["subject"], document["proposal"]
    document |= {"scope": one.subject.scope, "name": one.subject.name}
    return document | (
        {"since": None, "until": None} if one.proposal is None else asdict(one.proposal)
    )


def _print(
    baselines: Sequence[Baseline],
    offers: Sequence[Offer],
    notes: Mapping[str, str],
    history: History | None,
) -> None:
    """A row each; with ``history`` each proposal as a block, with what it leaves out."""
    rows = [
        _row(one.id, one.subject, one, one.accepted_by, _state(one, notes)) for one in baselines
    ]
    for one in offers if history is None else ():
        state = "proposed" if one.is_fit else f"not judged yet: {one.lacking or _UNFIT}"
        span = one.proposal if one.is_fit else None
        rows.append(_row("", one.subject.name, span, "", state))
    print_table(_HEADER, rows)
    if history is not None:
        for one in offers:
            _print_offer(one, history)
    elif any(one.is_fit for one in offers):
        print_note("driftwatch baseline accept SERVER puts its proposal in force")


def _row(
    id_: str, of: str, span: Baseline | Proposal | None, by: str, state: str
) -> tuple[str, ...]:
    began, length = "", ""
    if span is not None:
        began, length = f"{span.since:%Y-%m-%d %H:%M}", duration(span.length.total_seconds())
    return id_, of, began, length, by, state


def _state(one: Baseline, notes: Mapping[str, str]) -> str:
    note = notes.get(one.id, "")
    if note.startswith("not in force"):
        return note
    state = "in force" if one.why_no_speed is None else f"no load model: {one.why_no_speed}"
    return f"{state}; {note}" if note else state


def _print_offer(one: Offer, history: History) -> None:
    """A block: the window, how good it is, what it leaves out, how to accept it."""
    from driftwatch.baselines.candidates import proposal_text

    proposal, name = one.proposal, one.subject.name
    texts = [f"{name}: {_UNFIT}"]
    if proposal is not None:
        texts = [f"{name}: {span_text(proposal.since, proposal.until)}"]
        texts.append(f"  {'good' if proposal.keeps_slo else 'poor'}    {proposal_text(proposal)}")
        if proposal.length < LONG_ENOUGH:
            texts.append(f"  short   {duration(proposal.length.total_seconds())}: {YOUNG}")
        if proposal.seen_ratio < 0.99:
            texts.append(f"  scraped {100 * proposal.seen_ratio:.3g} % of its minutes")
    if one.lacking is not None:
        texts.append(f"  speed   no load model yet: {one.lacking}")
    texts += [
        f"  left out  {span_text(o.since, o.until)}: {o.why}" for o in one.left_out[:_LEFT_OUT]
    ]
    if len(one.left_out) > _LEFT_OUT:
        texts.append(f"  left out  and {len(one.left_out) - _LEFT_OUT} more (--json)")
    if proposal is not None and one.is_fit:
        texts.append(f"accept:   {_accepted_by(one, history)}")
    elif proposal is not None:
        texts.append("accept:   not yet: without a load model it would be refused")
    for text in texts:
        print_wrapped(text, " " * 10)


def _accepted_by(one: Offer, history: History) -> str:
    """The command that accepts it; of minutes that no database keeps with their options."""
    assert one.proposal is not None  # noqa: S101 - for mypy
    accept, options = "driftwatch baseline accept", repeat_options(without=("since", "until"))
    window = utc_text(one.proposal.since), utc_text(one.proposal.until)
    if history.is_stored:
        return f"{accept} {one.subject.name}{options}"
    if history.recordings:
        return f"--baseline {window[0]}..{window[1]} of replay, explain and recommend takes it"
    return f"{accept} {one.subject.name} --from {window[0]} --to {window[1]}{options}"
