"""``driftwatch ack``: somebody takes an incident."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from driftwatch.cli.database import person, written
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.incidents import as_data, target_text
from driftwatch.cli.output import print_json, print_wrapped
from driftwatch.clock import SystemClock

if TYPE_CHECKING:
    from driftwatch.model import Incident
    from driftwatch.store import Store


@click.command()
@click.argument("incident_id", metavar="ID")
@click.option("--comment", metavar="TEXT", default="", help="Why; every receiver gets it.")
@click.option("--by", metavar="NAME", help="Who takes it; default: this user.")
@json_option
@history_options("db", "config")
def command(
    incident_id: str,
    comment: str,
    by: str | None,
    as_json: bool,
    history: History,
) -> None:
    """Acknowledge a firing incident; ID may be its first digits.

    Whoever got its page is told, and nothing is repeated until the incident resolves. A second ack
    changes nothing unless it has --comment: then it takes the place of the first.
    """
    from driftwatch.notify.numbers import moment

    now = SystemClock().now()
    name, comment = person(by), written(comment.strip(), "--comment")
    with history.store() as store:
        incident, is_new, _ = store.acknowledge(incident_id, name, now, comment=comment)
        names = reached(store, incident)
    if as_json:
        print_json({"schema_version": 1, "incident": as_data(incident)})
        return
    at, today = incident.acknowledged_at or now, now.date()
    words = "acked" if is_new else "was already acked"
    print_wrapped(
        f"{incident.id} {words} by {incident.acknowledged_by} at {moment(at, today)}, "
        "until it resolves: "
        f"{incident.alert} {target_text(incident.target)}" + (who_hears(names) if is_new else "")
    )


def reached(store: Store, incident: Incident) -> list[str]:
    """The receivers that got its page, or are about to."""
    from driftwatch.incidents.outbox_history import OutboxHistory

    records = store.outbox_records(incident.started_at, {incident.id})
    return OutboxHistory(records).receivers_of(incident.id)


def who_hears(names: list[str]) -> str:
    """Whom the running service tells."""
    return f"; driftwatch tells {', '.join(names)}" if names else "; no receiver has its page"
