"""``driftwatch baseline``: the windows that speed and lengths are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.database import person, written
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option, repeat_options
from driftwatch.cli.lazy import LazyGroup
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_NO_VERDICT, EXIT_PROBLEM
from driftwatch.cli.printer import print_json, print_note, print_table, print_wrapped
from driftwatch.cli.replay_summary import YOUNG, span_text
from driftwatch.clock import SystemClock
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.numbers import duration, plural, utc_text

if TYPE_CHECKING:
    from driftwatch.baselines.candidates import Material, Offer, Subject
    from driftwatch.detect.baselines import Baseline
    from driftwatch.pipeline.explain import Window

_MOST_READ = 200  # targets without a baseline whose minutes are read; the others are counted
_LEFT_OUT = 6  # stretches that are printed
_LISTED = 8  # names in an error
_WHY_CHARACTERS = 500
_HEADER = ("ID", "OF", "FROM UTC", "LENGTH", "BY", "STATE")
_UNFIT = "no minute is fit for a baseline"
_MODULES = {
    "list": "driftwatch.cli.baseline:list_command",
    "accept": "driftwatch.cli.baseline:accept_command",
}
_HELPS = {
    "list": "List baselines, and propose one for each target without.",
    "accept": "Accept a proposal, or a window of your own.",
}


@click.command(cls=LazyGroup, modules=_MODULES, helps=_HELPS)
def command() -> None:
    """What speed and lengths are compared with; only a person changes it, with accept."""


@click.command(name="list")
@click.argument("name", metavar="[ID|TARGET|POOL]", required=False)
@json_option
@history_options("recordings", "prometheus", "span", "db", "config")
def list_command(name: str | None, as_json: bool, history: History) -> int:
    """List the baselines in force, and propose one for each target without.

    A proposal is the best window of the last two days (--recording, --prometheus: of all of it).
    With a name: that baseline, and the window that driftwatch would propose now, with what it
    leaves out. Changes nothing. Piped, a row is a baseline or a proposal: id, target or pool, from,
    length, by, state. Exit code 4: there is no baseline and no window is fit for one.
    """
    from driftwatch.baselines.candidates import Subject, offer, subjects, without_baseline
    from driftwatch.baselines.in_force import notes_on

    material = _material(history)
    baselines, more = material.baselines.every, 0
    if name is None and history.is_stored:
        lacking = without_baseline(material)
        wanted = [Subject("target", (one,)) for one in lacking[:_MOST_READ]]
        more = len(lacking) - len(wanted)
    else:
        baselines, wanted = _named(baselines, name), subjects(material, name)
        if not baselines and not wanted:
            raise _unknown(f"no baseline, target or pool {name!r}", material)
    offers = [offer(material, subject) for subject in wanted]
    if history.is_stored:
        _remember(history, offers)
    notes = notes_on(material.baselines, material.targets, material.ran)
    if as_json:
        in_force = [{**one.document(), "note": notes.get(one.id)} for one in baselines]
        proposals = [_document(one) for one in offers]
        print_json(
            {"schema_version": 2, "in_force": in_force, "proposals": proposals, "more": more}
        )
    elif name is None and history.is_stored:
        rows = [_row(one, _state(one, notes)) for one in baselines]
        print_table(_HEADER, [*rows, *map(_offer_row, offers)])
        if any(one.is_fit for one in offers):
            print_note("driftwatch baseline accept ID puts a proposal in force")
        if more:
            print_note(f"{plural(more, 'target')} more without a baseline")
    else:
        for label, text in (pair for one in baselines for pair in _details(one, notes)):
            print_wrapped(f"{label:18} {text}", " " * 19)
        for one in offers:
            _print_offer(one, history)
    return EXIT_ANSWERED if baselines or any(one.is_fit for one in offers) else EXIT_NO_VERDICT


@click.command(name="accept")
@click.argument("names", metavar="PROPOSAL|TARGET|POOL...", nargs=-1, required=True)
@click.option("--by", metavar="NAME", help="Who accepts it; default: this user.")
@click.option("--why", metavar="TEXT", default="", help="Why it is good; kept with the baseline.")
@click.option(
    "--anyway",
    is_flag=True,
    help="Accept a window with an incident, a restart or too few scrapes too; needs --why.",
)
@json_option
@history_options("span", "prometheus", "db", "config")
def accept_command(
    names: tuple[str, ...], by: str | None, why: str, anyway: bool, as_json: bool, history: History
) -> int:
    """Accept proposals by their ids, or the window --from to --to of a target or a pool.

    The new baseline replaces the old one; a pool's holds for all of its targets without their own.
    Exit code 1: the window has an incident, a restart or too few scrapes in it, and nothing was
    accepted.
    """
    from driftwatch.baselines.candidates import accepted, candidate

    _refuse_contradictions(names, written(why, "--why"), anyway, history)
    material = _material(history)
    at, who = SystemClock().now(), person(by)
    baselines: list[Baseline] = []
    refusals: list[tuple[str, str]] = []
    for subject, window in _wanted(material, names, history):
        wanted = candidate(material, subject, window)
        baseline = accepted(wanted, who, at, why, anyway=anyway)
        if baseline is None:
            refusals += [(subject.name, reason) for reason in wanted.refusals]
        else:
            baselines.append(baseline)
    if refusals:
        baselines = []
    with replace(history, prometheus=None).store() as store, store.one_transaction():
        store.add_baselines(baselines)
        for one in baselines:
            store.note_action("accept baseline", who, at, subject=one.id)
    if as_json:
        refused = [{"name": name, "reason": reason} for name, reason in refusals]
        documents = [one.document() for one in baselines]
        print_json({"schema_version": 2, "accepted": documents, "refused": refused})
        return EXIT_PROBLEM if refusals else EXIT_ANSWERED
    for name, reason in refusals:
        print_wrapped(f"refused: {name}: {reason}")
    if refusals:
        click.echo(
            "help: nothing was accepted; take another window, or --anyway --why TEXT", err=True
        )
    for one in baselines:
        span = f"{span_text(one.since, one.until)} ({_length(one)})"
        print_wrapped(f"baseline {one.id} of {one.subject}: {span}, {_state(one, {})}")
        if one.length.total_seconds() < 86_400:
            print_note(YOUNG)
    return EXIT_PROBLEM if refusals else EXIT_ANSWERED


def _refuse_contradictions(
    names: tuple[str, ...], why: str, anyway: bool, history: History
) -> None:
    """Raises UsageError: options that mean nothing together, all at once."""
    wrong: list[str] = []
    if (history.since is None) != (history.until is None):
        wrong.append("give --from and --to, or neither with the id of a proposal")
    elif history.since is not None and history.until is not None:
        if history.since >= history.until:
            wrong.append("--from is not before --to")
        if len(names) > 1:
            wrong.append("a window is accepted for one target or pool at a time")
    elif not history.is_stored:
        wrong.append("proposals are kept in the database only: give --from and --to")
    if anyway and not why.strip():
        wrong.append("--anyway needs --why TEXT")
    if len(why) > _WHY_CHARACTERS:
        wrong.append(f"--why takes at most {_WHY_CHARACTERS} characters")
    if wrong:
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
        material = of(store, history.plan)
    if material.until is None and not material.baselines.every:
        where = "the database holds no minute yet" if history.is_stored else "no whole minute"
        raise NoVerdict(where, help_text="driftwatch run -c driftwatch.yaml")
    return material


def _wanted(
    material: Material, names: tuple[str, ...], history: History
) -> Iterator[tuple[Subject, Window]]:
    """What is to be accepted.

    Raises UsageError: a name is no target, pool or proposal.
    """
    from driftwatch.baselines.candidates import subjects
    from driftwatch.pipeline.explain import Window

    if history.since is not None and history.until is not None:
        matching = subjects(material, names[0])
        if len(matching) != 1:
            raise _unknown(f"{names[0]!r} names {len(matching)} targets or pools", material)
        yield matching[0], Window(history.since, history.until)
        return
    proposals = {one["id"]: one for one in _remembered(history)}
    for name in names:
        if name not in proposals:
            raise UsageError(
                f"no proposal {name!r}",
                help_text="driftwatch baseline list; for a window give --from and --to",
            )
        one = proposals[name]
        ends = (datetime.fromisoformat(one[end]).astimezone(UTC) for end in ("since", "until"))
        window = Window(*ends)
        yield from ((subject, window) for subject in subjects(material, one["name"])[:1])


def _unknown(message: str, material: Material) -> UsageError:
    known = [key.text for key in sorted(material.targets)]
    known += sorted({one.pool for one in material.targets.values() if one.pool})
    return UsageError(message, help_text=f"one of: {', '.join(known[:_LISTED])}")


def _named(baselines: Sequence[Baseline], name: str | None) -> Sequence[Baseline]:
    """Those whose id begins so, else those of the target or pool."""
    if name is None:
        return baselines
    by_id = [one for one in baselines if one.id.startswith(name)]
    return by_id or [one for one in baselines if name in (one.subject, one.instance)]


def _remember(history: History, offers: Sequence[Offer]) -> None:
    """Keep what is proposed, so that it can be accepted by its id."""
    import orjson

    from driftwatch.store.baselines import PROPOSALS

    names = ("id", "name", "since", "until", "lacking")
    new = [{n: d[n] for n in names} for d in map(_document, offers) if d["id"] is not None]
    ids = {one["id"] for one in new}
    kept = [one for one in _remembered(history) if one["id"] not in ids]
    with history.store() as store:
        store.remember({PROPOSALS: orjson.dumps([*kept, *new][-_MOST_READ:])})


def _remembered(history: History) -> list[dict[str, Any]]:
    import orjson

    from driftwatch.store.baselines import PROPOSALS

    with replace(history, prometheus=None).store() as store:
        return orjson.loads(store.remembered(PROPOSALS) or b"[]")  # type: ignore[no-any-return]


def _document(one: Offer) -> dict[str, Any]:
    """An offer as JSON has it; unknown is null."""
    document = {**asdict(one), "subject": None, "proposal": None}
    del document["subject"], document["proposal"]
    document |= {"scope": one.subject.scope, "name": one.subject.name, "id": one.id}
    return document | (
        {"since": None, "until": None} if one.proposal is None else asdict(one.proposal)
    )


def _row(one: Baseline, state: str) -> tuple[str, ...]:
    began = f"{one.since:%Y-%m-%d %H:%M}"
    return one.id, one.subject, began, _length(one), one.accepted_by, state


def _offer_row(one: Offer) -> tuple[str, ...]:
    proposal = one.proposal
    if proposal is None or not one.is_fit:
        return "", one.subject.name, "", "", "", f"not judged yet: {one.lacking or _UNFIT}"
    length = duration(proposal.length.total_seconds())
    return (
        one.id or "",
        one.subject.name,
        f"{proposal.since:%Y-%m-%d %H:%M}",
        length,
        "",
        "proposed",
    )


def _state(one: Baseline, notes: Mapping[str, str]) -> str:
    state = "in force" if one.load_model is not None else f"no load model: {one.arming}"
    return f"{state}; {notes[one.id]}" if one.id in notes else state


def _length(one: Baseline) -> str:
    return duration(one.length.total_seconds())


def _details(one: Baseline, notes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    what = "pool" if one.scope == "pool" else f"pool {one.pool}"
    yield "baseline", f"{one.id} of {one.subject} ({what}): {_state(one, notes)}"
    yield "window", f"{span_text(one.since, one.until)}, {_length(one)}"
    yield "accepted", f"by {one.accepted_by} at {one.accepted_at:%Y-%m-%d %H:%M} UTC"
    yield "why", one.why or "no reason given"
    for group in ("identity", "knobs", "release"):
        values: Mapping[str, str] = getattr(one.fingerprint, group)
        yield group, ", ".join(f"{n} {values[n]}" for n in sorted(values)) or "unknown"
    if (model := one.load_model) is not None:
        low, high = model.requests_range
        step, request, kv, *prefill = model.coefficients
        yield (
            "speed",
            f"{1e3 * step:.3g} ms a step + {1e3 * request:.3g} ms a request + {1e9 * kv:.3g} ns a "
            f"KV token + {1e6 * sum(prefill):.3g} µs a prefill token",
        )
        yield "range", f"{low:.3g} to {high:.3g} requests a step; {model.minutes:,} minutes"
        yield "residual", f"{100 * model.misfit_ratio:.2g} % of a minute's inter-token latency"
    row = one.reference or {}
    for name in ("prompt_tokens", "generation_tokens"):
        mean, n = row.get(f"reference_{name}_mean"), row.get("reference_finished_requests")
        text = "unknown: fewer than 100 finished requests"
        yield name, text if mean is None else f"mean {mean:,.3g}, n {n:,.0f}"


def _print_offer(one: Offer, history: History) -> None:
    """A block: the window, why it is good, what it leaves out, how to accept it."""
    from driftwatch.baselines.candidates import proposal_text

    proposal, name = one.proposal, one.subject.name
    texts = [f"{name}: {_UNFIT}"]
    if proposal is not None:
        texts = [f"{name}: {span_text(proposal.since, proposal.until)}"]
        texts.append(f"  good    {proposal_text(proposal)}")
        if proposal.length.total_seconds() < 86_400:
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
        return f"{accept} {one.id}{options}"
    if history.recordings:
        return f"--baseline {window[0]}..{window[1]} of replay, explain and recommend takes it"
    return f"{accept} {one.subject.name} --from {window[0]} --to {window[1]}{options}"
