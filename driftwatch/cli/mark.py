"""``driftwatch mark``: a page was useful, or was not."""

from __future__ import annotations

from typing import Literal

import click

from driftwatch.cli.database import person, written
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.incidents import as_data, target_text
from driftwatch.cli.printer import print_json, print_wrapped
from driftwatch.clock import SystemClock
from driftwatch.errors import UsageError


@click.command()
@click.argument("incident_id", metavar="ID")
@click.option("--useful/--not-useful", default=None, help="Somebody had to act, or nobody had to.")
@click.option("--because", metavar="TEXT", default="", help="Why.")
@click.option("--by", metavar="NAME", help="Who marks it; default: this user.")
@json_option
@history_options("db", "config")
def command(
    incident_id: str,
    useful: bool | None,
    because: str,
    by: str | None,
    as_json: bool,
    history: History,
) -> None:
    """Mark the page of an incident, open or over; ID: its first characters are enough.

    The weekly report prints how many of its week's pages were not useful, beside the false pages
    that detection.false_episodes_per_server_month allows. The last mark counts. A page without a
    mark is unknown, neither useful nor not.
    """
    if useful is None:
        raise UsageError("useful or not? give --not-useful or --useful")
    from driftwatch.numbers import moment

    now = SystemClock().now()
    name, why = person(by), written(because.strip(), "--because")
    judgement: Literal["useful", "not useful"] = "useful" if useful else "not useful"
    with history.store() as store:
        with store.one_transaction():
            mark = store.mark(incident_id, judgement, by=name, at=now, because=why)
            store.note_action(
                "mark", name, now, incident_id=mark.incident_id, subject=judgement, comment=why
            )
        incident = store.incident(incident_id)
    if as_json:
        data = {**as_data(incident), "mark": mark}
        print_json({"schema_version": 1, "incident": data})
        return
    what = f"{incident.alert} {target_text(incident.target)}"
    at = moment(mark.at, now.date())
    print_wrapped(f"{incident.id} marked {mark.mark} by {mark.by} at {at}: {what}")
