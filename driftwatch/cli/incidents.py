"""``driftwatch incidents``: what is open, and what was."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.incident_notes import notes_of, with_notes
from driftwatch.cli.options import Time
from driftwatch.cli.output import lines, print_json
from driftwatch.clock import SystemClock
from driftwatch.notify.numbers import moment, utc_text

if TYPE_CHECKING:
    from driftwatch.model import Incident

HEADER = ("ID", "STATE", "SEVERITY", "SINCE UTC", "TARGET", "ALERT")


@click.command()
@click.argument("incident_id", metavar="[ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="Resolved ones too.")
@click.option(
    "--state",
    type=click.Choice(["pending", "firing", "resolved"]),
    help="Only those in this state.",
)
@click.option(
    "--since",
    "start",
    type=Time(),
    help="Those open or resolved since then: 24h (ago), or 2026-01-31T14:05Z.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Most incidents that are printed.",
)
@json_option
@history_options("db", "config")
def command(
    incident_id: str | None,
    everything: bool,
    state: str | None,
    start: datetime | None,
    limit: int,
    as_json: bool,
    history: History,
) -> None:
    """List incidents, open ones first; without options only the open ones. With ID: who was sent
    what of one incident, when and why, what people did, and what held it back.

    Piped, each line is one incident: id, state, severity, since, target, alert, ended,
    acknowledged by, silenced by, inhibited by, note; tabs between them, nothing cut.
    """
    now = SystemClock().now()
    if incident_id is not None:
        from driftwatch.cli.incident_history import print_history

        with history.store() as store:
            print_history(store, incident_id, now, as_json)
        return
    with history.store() as store:
        incidents = store.incidents(state=state, since=start, limit=limit + 1, pages=as_json)
        if not everything and state is None and start is None:
            incidents = [incident for incident in incidents if incident.state != "resolved"]
        marks = store.marks([incident.id for incident in incidents]) if as_json else {}
        notes = notes_of(incidents, store, now)
        notified = {id_ for id_, _ in store.notified()}
    more = len(incidents) > limit
    incidents = incidents[:limit]
    if as_json:
        listed = [
            {
                **as_data(i),
                "mark": marks.get(i.id),
                "note": notes.get(i.id),
                "reaches_nobody": reaches_nobody(i, notified),
            }
            for i in incidents
        ]
        print_json({"schema_version": 1, "incidents": listed, "more": more})
        return
    texts = [notes.get(i.id, "") for i in incidents]
    short = [short_row(incident, now) for incident in incidents]
    full = [full_row(i, note) for i, note in zip(incidents, texts, strict=True)]
    for line in with_notes(lines(HEADER, short, full), texts):
        click.echo(line)
    if lost := [i.id[:8] for i in incidents if reaches_nobody(i, notified)]:
        of_these = f"{len(lost)} of these" if len(lost) > 1 else "one of these"
        more_ids = ", …" if len(lost) > 5 else ""
        text = f"no receiver got {of_these}: {', '.join(lost[:5])}{more_ids}"
        click.echo(f"{text} (see driftwatch doctor)", err=True)
    if not incidents:
        if state is not None or start is not None:
            words = "no incident that fits"
        else:
            words = "no incident" if everything else "no open incident (--all: resolved ones too)"
        click.echo(words, err=True)
    elif more:
        click.echo(f"the first {limit}; --limit for more", err=True)


def state_word(incident: Incident) -> str:
    """The state as a word; firing ones may be acked or silenced, pending ones inhibited."""
    if incident.state == "pending" and incident.inhibited_by is not None:
        return "inhibited"
    if incident.state != "firing":
        return incident.state
    if incident.acknowledged_at is not None:
        return "acked"
    return "firing" if incident.silenced_by is None else "silenced"


def reaches_nobody(incident: Incident, notified: Collection[str]) -> bool:
    """Whether it is a page or ticket that fires, that nothing holds back, and no receiver gets.

    ``notified``: ids of open incidents whose page went to a receiver, or is to go there.
    """
    return (
        incident.state == "firing"
        and incident.severity != "notice"
        and not incident.is_quiet
        and incident.id not in notified
    )


def target_text(target: Mapping[str, str]) -> str:
    """A target group in one word where that says it, else its labels."""
    from driftwatch.model import TargetKey

    if "instance" in target:
        return TargetKey(target["instance"], target.get("engine", "0")).text
    if "pool" in target:
        return target["pool"]
    return ",".join(f"{name}={target[name]}" for name in sorted(target)) or "all"


def short_row(incident: Incident, now: datetime) -> tuple[str, ...]:
    """For the terminal; eight digits of the id are enough to name it."""
    return (
        incident.id[:8],
        state_word(incident),
        incident.severity,
        moment(incident.started_at, now.date()).removesuffix(" UTC"),
        target_text(incident.target),
        incident.alert,
    )


def full_row(incident: Incident, note: str = "") -> tuple[str, ...]:
    """For other programs: nothing cut, empty where there is nothing."""
    return (
        incident.id,
        state_word(incident),
        incident.severity,
        utc_text(incident.started_at),
        target_text(incident.target),
        incident.alert,
        _time(incident.resolved_at) or "",
        incident.acknowledged_by or "",
        incident.silenced_by or "",
        incident.inhibited_by or "",
        note,
    )


def as_data(incident: Incident) -> dict[str, Any]:
    """An incident as it is stored, its page as receivers get it."""
    from driftwatch.notify.page_values import public

    page = None if incident.page is None else public(incident.page)
    return {**asdict(replace(incident, page=None)), "page": page}


def _time(at: datetime | None) -> str | None:
    return None if at is None else utc_text(at)
