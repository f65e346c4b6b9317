"""``driftwatch ack``: acknowledge an incident, or mark its page as useful or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.database import incident_store, person, written
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.printer import print_json, print_wrapped
from driftwatch.clock import SystemClock
from driftwatch.errors import UsageError
from driftwatch.numbers import moment

if TYPE_CHECKING:
    from driftwatch.incidents.incident import Incident
    from driftwatch.store.people import IncidentStore


@click.command()
@click.argument("incident_id", metavar="ID")
@click.option("--comment", metavar="TEXT", default="", help="Why; every receiver gets it.")
@click.option("--by", metavar="NAME", help="Who acknowledges or marks; default: this user.")
@click.option("--undo", is_flag=True, help="Take the acknowledgement back: repeats begin anew.")
@click.option(
    "--useful/--not-useful",
    default=None,
    help="Mark the page instead, open or over: somebody had to act, or nobody had to.",
)
@json_option
@history_options("db", "config")
def command(
    incident_id: str,
    comment: str,
    by: str | None,
    undo: bool,
    useful: bool | None,
    as_json: bool,
    history: History,
) -> None:
    """Acknowledge a firing incident; ID may be its first digits.

    driftwatch tells whoever got its page, and repeats nothing until the incident resolves. A second
    ack changes nothing unless it has --comment: then it takes the place of the first. The weekly
    report counts the pages that somebody marked --not-useful; the last mark counts.
    """
    if undo and useful is not None:
        raise UsageError("--undo takes an acknowledgement back, not a mark: give one of them")
    now, by, comment = SystemClock().now(), person(by), written(comment.strip(), "--comment")
    data: dict[str, Any] = {}
    heard = ""
    with incident_store(history.db, history.config_file) as store:
        if useful is not None:
            said = "useful" if useful else "not useful"
            mark = store.mark(incident_id, said, by=by, at=now, because=comment)
            incident, data = store.incident(mark.incident_id), {"mark": mark}
            done = f"marked {said} by {by} at {moment(now, now.date())}"
        else:
            act = store.unacknowledge if undo else store.acknowledge
            incident, is_new, _ = act(incident_id, by, now, comment=comment)
            done = _done(incident, by, is_new=is_new, undo=undo)
            heard = _who_hears(store, incident) if is_new else ""
    if as_json:
        print_json({"schema_version": 1, "incident": {**incident.document(), **data}})
        return
    print_wrapped(f"{incident.id} {done}: {incident.alert} {incident.name}{heard}")


def _done(incident: Incident, by: str, *, is_new: bool, undo: bool) -> str:
    one = incident.acknowledgement
    if undo or one is None:
        return f"not acknowledged any more, says {by}"
    words = "acknowledged" if is_new else "was already acknowledged"
    return f"{words} by {one.by} at {moment(one.at, one.at.date())}, until it resolves"


def _who_hears(store: IncidentStore, incident: Incident) -> str:
    """Whom the running service tells: the receivers that got its page, or are about to."""
    pages = (one for one in store.outbox_records({incident.id}) if one.event == "firing")
    names = sorted(one.receiver for one in pages if one.subject == incident.id and not one.is_dead)
    return f"; driftwatch tells {', '.join(names)}" if names else "; no receiver has its page"
