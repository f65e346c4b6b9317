"""``driftwatch incidents ID``: who was sent what of one incident, when and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import click

from driftwatch.cli.incidents import as_data, state_word, target_text
from driftwatch.cli.output import lines, print_json, print_wrapped
from driftwatch.notify.delivery_words import status_text
from driftwatch.notify.numbers import moment, utc_text

if TYPE_CHECKING:
    from driftwatch.incidents.actions import Action
    from driftwatch.incidents.delivery import Delivery
    from driftwatch.incidents.silence import Silence
    from driftwatch.model import Incident
    from driftwatch.store import Store

HEADER = ("AT UTC", "EVENT", "TO", "WHY", "STATUS")


def print_history(store: Store, id_prefix: str, now: datetime, as_json: bool) -> None:
    """State, what holds it back, then each delivery and what people did, in order of time."""
    from driftwatch.incidents.silence import labels_of, matches

    incident = store.incident(id_prefix)
    deliveries, actions = store.deliveries(incident.id), store.actions(incident.id)
    end = incident.resolved_at or now
    silences = [
        one
        for one in store.silences()
        if one.starts_at < end
        and one.ends_at > incident.started_at
        and matches(one, labels_of(incident))
    ]
    if as_json:
        data = as_data(incident) | {
            "deliveries": [replace(one, payload=None) for one in deliveries],
            "actions": actions,
            "silences": [one.id for one in silences],
        }
        print_json({"schema_version": 1, "incident": data})
        return
    today = now.date()
    print_wrapped(
        f"{incident.id} {state_word(incident)}: {incident.alert} {target_text(incident.target)}, "
        f"{incident.severity}, began {moment(incident.started_at, today)}"
    )
    for text in _held_back(incident, silences, now):
        print_wrapped(text)
    timeline = sorted(
        [(one.planned_at, 1, one.id, _delivery_row(one, now)) for one in deliveries]
        + [(one.at, 0, one.id, _action_row(one, now)) for one in actions],
        key=lambda entry: entry[:3],
    )
    short = [(moment(at, today).removesuffix(" UTC"), *row) for at, _, _, row in timeline]
    full = [(utc_text(at), *row) for at, _, _, row in timeline]
    for line in lines(HEADER, short, full):
        click.echo(line)
    if not timeline:
        click.echo("no receiver was sent anything of it", err=True)


def _held_back(incident: Incident, silences: Sequence[Silence], now: datetime) -> Iterator[str]:
    if incident.acknowledged_comment:
        yield f"{incident.acknowledged_by}: {incident.acknowledged_comment}"
    if incident.state == "pending" and incident.inhibited_by is not None:
        yield f"inhibited by {incident.inhibited_by}"
    for silence in silences:
        verb = "silenced" if silence.active(now) else "was silenced"
        times = f"{moment(silence.starts_at, now.date())} to {moment(silence.ends_at, now.date())}"
        why = f": {silence.comment}" if silence.comment else ""
        yield f"{verb} {times} by {silence.created_by} ({silence.id[:8]}){why}"


def _delivery_row(one: Delivery, now: datetime) -> tuple[str, ...]:
    again = f" ({one.number})" if one.number else ""
    return (one.event, one.receiver, one.reason + again, status_text(one, now.date()))


def _action_row(one: Action, now: datetime) -> tuple[str, ...]:
    comment = f": {one.comment}" if one.comment else ""
    return (one.action, "", f"{one.by}{comment}", f"via {one.via}")
