"""``driftwatch mark``: say whether a page was useful."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from driftwatch.cli.database import database_options, open_store, person, short_time, written
from driftwatch.cli.incidents import as_data, mark_data, target_text
from driftwatch.cli.table import encodable, printable
from driftwatch.clock import SystemClock
from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.store.incidents import Mark


@click.command()
@click.argument("incident_id", metavar="ID")
@click.option("--not-useful", is_flag=True, help="Nobody needed it.")
@click.option("--useful", is_flag=True, help="It was worth telling somebody.")
@click.option("--undo", is_flag=True, help="Take the mark back: unknown again.")
@click.option("--because", metavar="TEXT", default="", help="Why.")
@click.option("--by", metavar="NAME", help="Who says it; default: this user.")
@click.option("--json", "as_json", is_flag=True, help="The incident with its mark as JSON.")
@database_options
def command(
    incident_id: str,
    not_useful: bool,
    useful: bool,
    undo: bool,
    because: str,
    by: str | None,
    as_json: bool,
    db: str | None,
    config: str | None,
) -> None:
    """Mark the page of an incident, open or over; ID may be its first digits.

    The weekly report counts the pages of its week that were not useful beside the noise budget.
    Who marks last stands. A page without a mark is neither: it is unknown.
    """
    if not_useful + useful + undo != 1:
        raise UsageError("useful or not? give --not-useful, --useful or --undo, one of them")
    if because and undo:
        raise UsageError("--because belongs to --not-useful or --useful")
    now = SystemClock().now()
    name, why = person(by), written(because.strip(), "--because")
    mark: Mark | None = None
    with open_store(db, config) as store:
        if undo:
            store.unmark(incident_id)
        else:
            judgement = "useful" if useful else "not useful"
            mark = store.mark(incident_id, judgement, by=name, at=now, because=why)
        incident = store.incident(incident_id)
    if as_json:
        document = {"schema_version": 1, "incident": {**as_data(incident), "mark": mark_data(mark)}}
        click.echo(json.dumps(document, sort_keys=True, allow_nan=False))
        return
    what = f"{incident.alert} {target_text(incident.target)}"
    words = "is not marked any more" if mark is None else f"marked {mark.mark} by {mark.by}"
    at = "" if mark is None else f" at {short_time(mark.at, now)}"
    click.echo(encodable(printable(f"{incident.id} {words}{at}: {what}")))
