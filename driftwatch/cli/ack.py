"""``driftwatch ack``: say that somebody has taken an incident."""

from __future__ import annotations

import json

import click

from driftwatch.cli.database import database_options, open_store, person, short_time
from driftwatch.cli.incidents import as_data, target_text
from driftwatch.cli.table import encodable, printable
from driftwatch.clock import SystemClock


@click.command()
@click.argument("incident_id", metavar="ID")
@click.option("--by", metavar="NAME", help="Who takes it; default: this user.")
@click.option("--json", "as_json", is_flag=True, help="The incident as JSON.")
@database_options
def command(
    incident_id: str, by: str | None, as_json: bool, db: str | None, config: str | None
) -> None:
    """Acknowledge a firing incident; ID may be its first digits. Who came first stays."""
    now = SystemClock().now()
    name = person(by)
    with open_store(db, config) as store:
        incident = store.acknowledge(incident_id, name, now)
    if as_json:
        document = {"schema_version": 1, "incident": as_data(incident)}
        click.echo(json.dumps(document, sort_keys=True, allow_nan=False))
        return
    at = incident.acknowledged_at or now
    mine = incident.acknowledged_by == name and at == now
    words = "acked" if mine else "was already acked"
    line = (
        f"{incident.id} {words} by {incident.acknowledged_by} at {short_time(at, now)}: "
        f"{incident.alert} {target_text(incident.target)}"
    )
    click.echo(encodable(printable(line)))
