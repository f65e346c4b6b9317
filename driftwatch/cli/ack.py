"""``driftwatch ack``: somebody takes an incident."""

from __future__ import annotations

import click

from driftwatch.cli.database import person
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.incidents import as_data, target_text
from driftwatch.cli.output import print_json, print_wrapped
from driftwatch.clock import SystemClock


@click.command()
@click.argument("incident_id", metavar="ID")
@click.option("--by", metavar="NAME", help="Who takes it; default: this user.")
@json_option
@history_options("db", "config")
def command(incident_id: str, by: str | None, as_json: bool, history: History) -> None:
    """Acknowledge a firing incident; ID may be its first digits.

    A second ack changes nothing.
    """
    from driftwatch.notify.numbers import moment

    now = SystemClock().now()
    name = person(by)
    with history.store() as store:
        incident = store.acknowledge(incident_id, name, now)
    if as_json:
        print_json({"schema_version": 1, "incident": as_data(incident)})
        return
    at = incident.acknowledged_at or now
    mine = incident.acknowledged_by == name and at == now
    words = "acked" if mine else "was already acked"
    print_wrapped(
        f"{incident.id} {words} by {incident.acknowledged_by} at {moment(at, now.date())}: "
        f"{incident.alert} {target_text(incident.target)}"
    )
