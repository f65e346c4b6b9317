"""``driftwatch baseline propose``: the best stretch to pin, and why it is good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import orjson

from driftwatch.cli.baseline.place import material_of
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option, repeat_options
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_NO_VERDICT
from driftwatch.cli.output import lines, print_json, print_wrapped
from driftwatch.cli.proposal_notice import YOUNG, span_text
from driftwatch.errors import UsageError
from driftwatch.notify.numbers import duration, utc_text

if TYPE_CHECKING:
    from driftwatch.baselines.candidates import Offer
    from driftwatch.detect.proposals import Proposal

_LEFT_OUT = 6  # stretches that are named on a terminal


@click.command(name="propose")
@click.argument("name", metavar="[TARGET|POOL]", required=False)
@json_option
@history_options("recordings", "prometheus", "span", "pins", "db", "config")
def command(name: str | None, as_json: bool, history: History) -> int:
    """Find the best baseline in the last two days (--recording, --prometheus: in all of it).

    Prints why it is good and what it leaves out: incidents, restarts, warm-up, slow minutes.
    Without a name every target gets its own. Changes nothing. Exit code 4: no stretch is fit (or
    none holds enough for a load model yet).
    """
    from driftwatch.baselines.candidates import offer, subjects

    material = material_of(history)
    named = subjects(material, name)
    if not named:
        listed = ", ".join(key.text for key in sorted(material.targets)[:8])
        raise UsageError(f"no target or pool {name!r}", help_text=f"known targets: {listed}")
    offers = [offer(material, subject) for subject in named]
    if history.is_stored:
        with history.store() as store:
            store.keep_proposals(
                orjson.dumps([proposal_record(one) for one in offers if one.proposal])
            )
    if as_json:
        print_json({"schema_version": 1, "proposals": [as_data(one) for one in offers]})
    else:
        _print(offers, _typed_again(history))
    fit = any(one.proposal is not None and one.lacking is None for one in offers)
    return EXIT_ANSWERED if fit else EXIT_NO_VERDICT


def window_id(one: Offer) -> str:
    """The id that accepts an offer."""
    from driftwatch.pipeline.explain import Window

    assert one.proposal is not None  # noqa: S101 - asked of proposals only
    return one.subject.id_of(Window(one.proposal.since, one.proposal.until))


def proposal_record(one: Offer) -> dict[str, Any]:
    """What must be known to accept an offer by its id."""
    assert one.proposal is not None  # noqa: S101 - as above
    return {
        "id": window_id(one),
        "name": one.subject.name,
        "since": utc_text(one.proposal.since),
        "until": utc_text(one.proposal.until),
    }


def good_because(proposal: Proposal) -> str:
    """Why a stretch is good, in a line that is kept with the pin."""
    parts = [duration(proposal.length.total_seconds()), "no restart, no incident"]
    if proposal.slo_kept_ratio is not None:
        parts.append(f"SLO kept in {100 * proposal.slo_kept_ratio:.3g} % of its minutes")
    if proposal.requests_low is not None and proposal.requests_high is not None:
        parts.append(f"{proposal.requests_low:.3g}-{proposal.requests_high:.3g} requests a pass")
    parts.append(f"{proposal.finished_requests:,} requests finished")
    return ", ".join(parts)


def as_data(one: Offer) -> dict[str, Any]:
    """An offer as JSON values; unknown is null."""
    from driftwatch.detect.proposals import LONG_ENOUGH

    proposal, scope = one.proposal, one.subject.scope
    document: dict[str, Any] = {
        "scope": scope,
        "name": one.subject.name,
        "id": None,
        "left_out": [
            {
                "reason": part.why,
                "from": utc_text(part.since),
                "to": utc_text(part.until),
                "minutes": part.minutes,
            }
            for part in one.left_out
        ],
    }
    if proposal is None:
        return {**document, "reason": "no minute is fit for a baseline"}
    return {
        **document,
        "id": window_id(one),
        "from": utc_text(proposal.since),
        "to": utc_text(proposal.until),
        "length_seconds": proposal.length.total_seconds(),
        "is_long_enough": proposal.length >= LONG_ENOUGH,
        "why": good_because(proposal),
        "scrapes": proposal.scrapes,
        "seen_ratio": proposal.seen_ratio,
        "requests_per_forward_pass_q05": proposal.requests_low,
        "requests_per_forward_pass_q95": proposal.requests_high,
        "finished_requests": proposal.finished_requests,
        "slo_kept_ratio": proposal.slo_kept_ratio,
        "arming": one.lacking,
    }


def _typed_again(history: History) -> str | None:
    """What accepts an offer that no database keeps: the options of the same minutes."""
    if history.is_stored:
        return None
    file = " --pins pins.json" if history.recordings and history.pins is None else ""
    return repeat_options(without=("since", "until")) + file


def _print(offers: list[Offer], options: str | None) -> None:
    """A block each on a terminal; piped a row each."""
    import sys

    if not sys.stdout.isatty():
        for line in lines((), (), [_row(one) for one in offers]):
            click.echo(line)
        return
    for one in offers:
        _block(one, options)


def _row(one: Offer) -> tuple[str, ...]:
    """id, target or pool, from, to, hours, scrapes, why, what a load model lacks."""
    proposal = one.proposal
    if proposal is None:
        return ("", one.subject.name, "", "", "", "", "no minute is fit for a baseline", "")
    return (
        window_id(one),
        one.subject.name,
        utc_text(proposal.since),
        utc_text(proposal.until),
        f"{proposal.length.total_seconds() / 3600:.3g}",
        str(proposal.scrapes),
        good_because(proposal),
        one.lacking or "",
    )


def _block(one: Offer, options: str | None) -> None:
    from driftwatch.detect.proposals import LONG_ENOUGH

    proposal = one.proposal
    pad = " " * 10
    if proposal is None:
        print_wrapped(f"{one.subject.name}: no minute is fit for a baseline", pad)
    else:
        print_wrapped(f"{one.subject.name}: {span_text(proposal.since, proposal.until)}", pad)
        print_wrapped(f"  good    {good_because(proposal)}", pad)
        if proposal.length < LONG_ENOUGH:
            print_wrapped(f"  short   {duration(proposal.length.total_seconds())}: {YOUNG}", pad)
        if proposal.seen_ratio < 0.99:
            print_wrapped(f"  seen    {100 * proposal.seen_ratio:.3g} % of its minutes", pad)
        if one.lacking is not None:
            print_wrapped(f"  speed   no load model yet: {one.lacking}", pad)
    for part in one.left_out[:_LEFT_OUT]:
        print_wrapped(f"  left out  {span_text(part.since, part.until)}: {part.why}", pad)
    if len(one.left_out) > _LEFT_OUT:
        print_wrapped(f"  left out  and {len(one.left_out) - _LEFT_OUT} more (--json)", pad)
    if proposal is None:
        return
    if one.lacking is not None:
        print_wrapped("accept:   not yet: without a load model it would be refused", pad)
    elif options is None:
        print_wrapped(f"accept:   driftwatch baseline pin {window_id(one)}", pad)
    else:
        window = f"--from {utc_text(proposal.since)} --to {utc_text(proposal.until)}"
        print_wrapped(
            f"accept:   driftwatch baseline pin {one.subject.name} {window}{options}", pad
        )
