"""``driftwatch baseline propose``: the best stretch to pin, and why it is good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from driftwatch.cli.baseline.place import (
    Place,
    length_text,
    place_options,
    print_wrapped,
    span_text,
)
from driftwatch.cli.database import iso_time
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_NO_VERDICT
from driftwatch.cli.past import past_options, span_of
from driftwatch.cli.proposal_notice import YOUNG
from driftwatch.cli.table import lines
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

    from driftwatch.baselines.candidates import Offer
    from driftwatch.baselines.material import Material
    from driftwatch.cli.past import Api
    from driftwatch.detect.proposals import Proposal

_LEFT_OUT = 6  # stretches that are named on a terminal


@click.command(name="propose")
@click.argument("name", metavar="[TARGET|POOL]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@past_options
@place_options("recordings", "pins", "db", "config")
def command(
    name: str | None,
    as_json: bool,
    place: Place,
    **history: Any,
) -> int:
    """Find the best stretch of the last two days (recording, --prometheus: of it all) to pin.

    Says why it is good, and what was left out of it: incidents, restarts, warm-up, slow minutes.
    Without a name every target gets its own. Nothing is pinned. Exit code 4: no stretch is fit
    (or none holds enough for a load model yet).
    """
    from driftwatch.baselines.candidates import offer, subjects

    past = span_of(history, place.recordings)
    material = place.material(past)
    named = subjects(material, name)
    if not named:
        listed = ", ".join(key.text for key in sorted(material.targets)[:8])
        raise UsageError(f"no target or pool {name!r}", help_text=f"known targets: {listed}")
    offers = [offer(material, subject) for subject in named]
    if not place.recordings and place.pins is None and past is None:
        with place.store() as store:
            store.keep_proposals(
                orjson.dumps([proposal_record(one) for one in offers if one.proposal])
            )
    if as_json:
        document = {"schema_version": 1, "proposals": [as_data(one) for one in offers]}
        click.echo(json.dumps(document, sort_keys=True, allow_nan=False))
    else:
        _print(material, offers, _typed_again(place.recordings, past))
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
        "since": iso_time(one.proposal.since),
        "until": iso_time(one.proposal.until),
    }


def good_because(proposal: Proposal) -> str:
    """Why a stretch is good, in a line that is kept with the pin."""
    parts = [length_text(proposal.length), "no restart, no incident"]
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
                "from": iso_time(part.since),
                "to": iso_time(part.until),
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
        "from": iso_time(proposal.since),
        "to": iso_time(proposal.until),
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


def _typed_again(
    recordings: tuple[Path, ...], past: tuple[Api, tuple[datetime, datetime]] | None
) -> str | None:
    """What accepts an offer that no database keeps: the options of the same minutes."""
    if past is not None:
        return past[0].typed()
    if recordings:
        return f"{' '.join(f'--recording {path}' for path in recordings)} --pins pins.json"
    return None


def _print(material: Material, offers: list[Offer], minutes: str | None) -> None:
    """A block each on a terminal; piped a row each."""
    import sys

    if not sys.stdout.isatty():
        for line in lines((), (), [_row(one) for one in offers]):
            click.echo(line)
        return
    for one in offers:
        _block(one, minutes)


def _row(one: Offer) -> tuple[str, ...]:
    """id, target or pool, from, to, hours, scrapes, why, what a load model lacks."""
    proposal = one.proposal
    if proposal is None:
        return ("", one.subject.name, "", "", "", "", "no minute is fit for a baseline", "")
    return (
        window_id(one),
        one.subject.name,
        iso_time(proposal.since) or "",
        iso_time(proposal.until) or "",
        f"{proposal.length.total_seconds() / 3600:.3g}",
        str(proposal.scrapes),
        good_because(proposal),
        one.lacking or "",
    )


def _block(one: Offer, minutes: str | None) -> None:
    from driftwatch.detect.proposals import LONG_ENOUGH

    proposal = one.proposal
    pad = " " * 10
    if proposal is None:
        print_wrapped(f"{one.subject.name}: no minute is fit for a baseline", pad)
    else:
        print_wrapped(f"{one.subject.name}: {span_text(proposal.since, proposal.until)}", pad)
        print_wrapped(f"  good    {good_because(proposal)}", pad)
        if proposal.length < LONG_ENOUGH:
            print_wrapped(f"  short   {length_text(proposal.length)}: {YOUNG}", pad)
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
    elif minutes is None:
        print_wrapped(f"accept:   driftwatch baseline pin {window_id(one)}", pad)
    else:
        window = f"--from {iso_time(proposal.since)} --to {iso_time(proposal.until)}"
        print_wrapped(
            f"accept:   driftwatch baseline pin {one.subject.name} {window} {minutes}", pad
        )
