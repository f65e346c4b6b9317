"""``driftwatch unack``: somebody gives an incident back."""

from __future__ import annotations

import click

from driftwatch.cli.ack import reached, who_hears
from driftwatch.cli.database import person, written
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.incidents import as_data, target_text
from driftwatch.cli.output import print_json, print_wrapped
from driftwatch.clock import SystemClock


@click.command()
@click.argument("incident_id", metavar="ID")
@click.option("--comment", metavar="TEXT", default="", help="Why; every receiver gets it.")
@click.option("--by", metavar="NAME", help="Who gives it back; default: this user.")
@json_option
@history_options("db", "config")
def command(
    incident_id: str, comment: str, by: str | None, as_json: bool, history: History
) -> None:
    """End the acknowledgement of a firing incident; ID may be its first digits.

    Whoever got its page is told; repeats begin anew.
    """
    name, text = person(by), written(comment.strip(), "--comment")
    with history.store() as store:
        incident, _, _ = store.unacknowledge(incident_id, name, SystemClock().now(), comment=text)
        names = reached(store, incident)
    if as_json:
        print_json({"schema_version": 1, "incident": as_data(incident)})
        return
    print_wrapped(
        f"{incident.id} given back by {name}: {incident.alert} {target_text(incident.target)}"
        + who_hears(names)
    )
