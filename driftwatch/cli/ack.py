"""``driftwatch ack``: somebody takes an incident, or gives it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from driftwatch.cli.database import person, written
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.incidents import as_data, target_text
from driftwatch.cli.printer import print_json, print_wrapped
from driftwatch.clock import SystemClock

if TYPE_CHECKING:
    from driftwatch.incidents.incident import Incident
    from driftwatch.store import Store


@click.command()
@click.argument("incident_id", metavar="ID")
@click.option("--comment", metavar="TEXT", default="", help="Why; every receiver gets it.")
@click.option("--by", metavar="NAME", help="Who takes it; default: this user.")
@click.option("--undo", is_flag=True, help="Give it back: repeats begin anew.")
@json_option
@history_options("db", "config")
def command(
    incident_id: str,
    comment: str,
    by: str | None,
    undo: bool,
    as_json: bool,
    history: History,
) -> None:
    """Acknowledge a firing incident; ID may be its first digits.

    Whoever got its page is told, and nothing is repeated until the incident resolves. A second ack
    changes nothing unless it has --comment: then it takes the place of the first.
    """
    from driftwatch.numbers import moment

    now = SystemClock().now()
    name, comment = person(by), written(comment.strip(), "--comment")
    with history.store() as store:
        act = store.unacknowledge if undo else store.acknowledge
        incident, is_new, _ = act(incident_id, name, now, comment=comment)
        names = _reached(store, incident)
    if as_json:
        print_json({"schema_version": 1, "incident": as_data(incident)})
        return
    at = moment(incident.acknowledged_at or now, now.date())
    words = "acknowledged" if is_new else "was already acknowledged"
    done = f"{words} by {incident.acknowledged_by} at {at}, until it resolves"
    if undo:
        done = f"given back by {name}"
    text = f"{incident.id} {done}: {incident.alert} {target_text(incident.target)}"
    print_wrapped(text + (_who_hears(names) if is_new else ""))


def _reached(store: Store, incident: Incident) -> list[str]:
    """The receivers that got its page, or are about to."""
    pages = (one for one in store.outbox_records({incident.id}) if one.event == "firing")
    return sorted(one.receiver for one in pages if one.subject == incident.id and not one.is_dead)


def _who_hears(names: list[str]) -> str:
    """Whom the running service tells."""
    return f"; driftwatch tells {', '.join(names)}" if names else "; no receiver has its page"
