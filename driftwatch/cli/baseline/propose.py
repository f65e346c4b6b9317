"""``driftwatch baseline propose``: the best stretch to accept, and why it is good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
import orjson

from driftwatch.cli.baseline.place import material_of
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option, repeat_options
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_NO_VERDICT
from driftwatch.cli.printer import print_json, print_wrapped
from driftwatch.cli.proposal_notice import YOUNG, span_text
from driftwatch.errors import UsageError
from driftwatch.numbers import duration, utc_text

if TYPE_CHECKING:
    from driftwatch.baselines.candidates import Offer

_LEFT_OUT = 6  # stretches that are named on a terminal
_UNFIT = "no minute is fit for a baseline"


@click.command(name="propose")
@click.argument("name", metavar="[TARGET|POOL]", required=False)
@json_option
@history_options("recordings", "prometheus", "span", "db", "config")
def command(name: str | None, as_json: bool, history: History) -> int:
    """Find the best baseline in the last two days (--recording, --prometheus: in all of it).

    Prints why it is good and what it leaves out: incidents, restarts, warm-up, slow minutes.
    Without a name every target gets its own. Changes nothing. Exit code 4: no stretch is fit (or
    none holds enough for a load model yet).
    """
    from driftwatch.baselines.candidates import offer, subjects
    from driftwatch.store.baselines import PROPOSALS

    material = material_of(history)
    named = subjects(material, name)
    if not named:
        listed = ", ".join(key.text for key in sorted(material.targets)[:8])
        raise UsageError(f"no target or pool {name!r}", help_text=f"known targets: {listed}")
    offers = [offer(material, subject) for subject in named]
    documents = [as_data(one) for one in offers]
    if history.is_stored:
        with history.store() as store:
            records = [
                {name: d[name] for name in ("id", "name", "since", "until")}
                # pin takes it with --anyway alone
                | ({"lacking": d["arming"]} if d["arming"] else {})
                for d in documents
                if d["id"] is not None
            ]
            store.remember({PROPOSALS: orjson.dumps(records)})
    if as_json:
        print_json({"schema_version": 1, "proposals": documents})
    else:
        for one, document in zip(offers, documents, strict=True):
            _print(one, document, _accepted_by(document, history))
    fit = any(one.proposal is not None and one.lacking is None for one in offers)
    return EXIT_ANSWERED if fit else EXIT_NO_VERDICT


def as_data(one: Offer) -> dict[str, Any]:
    """An offer as it is; unknown is null."""
    from driftwatch.baselines.candidates import proposal_text
    from driftwatch.baselines.proposals import LONG_ENOUGH
    from driftwatch.pipeline.explain import Window

    proposal, subject = one.proposal, one.subject
    document = {"scope": subject.scope, "name": subject.name, "arming": one.lacking}
    left_out = {"left_out": [asdict(part) for part in one.left_out]}
    if proposal is None:
        return {**document, **left_out, "id": None, "reason": _UNFIT}
    return {
        **document,
        **asdict(proposal),
        **left_out,
        "id": subject.id_of(Window(proposal.since, proposal.until)),
        "is_long_enough": proposal.length >= LONG_ENOUGH,
        "why": proposal_text(proposal),
    }


def _accepted_by(document: Mapping[str, Any], history: History) -> str:
    """The command that accepts an offer; of minutes that no database keeps with their options."""
    pin = "driftwatch baseline accept"
    if document["id"] is None:
        return ""
    if history.is_stored:
        return f"{pin} {document['id']}{repeat_options(without=('since', 'until'))}"
    window = utc_text(document["since"]), utc_text(document["until"])
    if history.recordings:
        return f"--baseline {window[0]}..{window[1]} of replay, explain and recommend takes it"
    options = repeat_options(without=("since", "until"))
    return f"{pin} {document['name']} --from {window[0]} --to {window[1]}{options}"


def _print(one: Offer, document: Mapping[str, Any], accepted_by: str) -> None:
    """A block on a terminal."""
    proposal, texts = one.proposal, []
    if proposal is None:
        texts.append(f"{one.subject.name}: {_UNFIT}")
    else:
        texts.append(f"{one.subject.name}: {span_text(proposal.since, proposal.until)}")
        texts.append(f"  good    {document['why']}")
        if not document["is_long_enough"]:
            texts.append(f"  short   {duration(proposal.length.total_seconds())}: {YOUNG}")
        if proposal.seen_ratio < 0.99:
            texts.append(f"  scraped {100 * proposal.seen_ratio:.3g} % of its minutes")
        if one.lacking is not None:
            texts.append(f"  speed   no load model yet: {one.lacking}")
    for part in one.left_out[:_LEFT_OUT]:
        texts.append(f"  left out  {span_text(part.since, part.until)}: {part.why}")
    if len(one.left_out) > _LEFT_OUT:
        texts.append(f"  left out  and {len(one.left_out) - _LEFT_OUT} more (--json)")
    if one.lacking is not None:
        texts.append("accept:   not yet: without a load model it would be refused")
    elif proposal is not None:
        texts.append(f"accept:   {accepted_by}")
    for text in texts:
        print_wrapped(text, " " * 10)
