"""``driftwatch incidents``: what is open, and what was; of one who was sent what, when and why."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.database import incident_store
from driftwatch.cli.history import History
from driftwatch.cli.options import TIME, flag, history_options, json_option, option
from driftwatch.cli.printer import id_text, print_json, print_table, print_wrapped, time_text
from driftwatch.clock import SystemClock
from driftwatch.errors import ConfigError
from driftwatch.incidents.delivery import status_text
from driftwatch.numbers import moment

if TYPE_CHECKING:
    from driftwatch.incidents.incident import Incident
    from driftwatch.incidents.silence import Silence
    from driftwatch.store.people import IncidentStore

_MOST = 1000  # incidents of a list
NAMED_SERVERS = 5  # at one time; the others are counted
HEADER = ("ID", "STATE", "SEVERITY", "SINCE UTC", "WHERE", "ALERT")
_HISTORY = ("AT UTC", "EVENT", "TO", "WHAT", "STATUS")


@click.command()
@click.argument("incident_id", metavar="[ID]", required=False)
@flag("--all everything", "Resolved ones too.")
@option(
    "--since start", TIME, "Those open or resolved since then: 24h (ago), or 2026-01-31T14:05Z."
)
@json_option
@history_options("db", "config")
def command(
    incident_id: str | None,
    everything: bool,
    start: datetime | None,
    as_json: bool,
    history: History,
) -> None:
    """List incidents, open ones first; without options only the open ones. With ID: who was sent
    what of one incident, when and why, what people did, and what held it back.

    Piped, each line after the header is one incident: id, state, severity, since, where, alert, and
    who has it or what holds it back; tabs between them, nothing cut. --json has every field.
    """
    now = SystemClock().now()
    if incident_id is not None:
        with incident_store(history.db, history.config_file) as store:
            _print_history(store, incident_id, now, history, as_json=as_json)
        return
    with incident_store(history.db, history.config_file) as store:
        incidents = store.incidents(since=start, limit=_MOST + 1, pages=as_json)
        if not everything and start is None:
            incidents = [incident for incident in incidents if incident.state != "resolved"]
        marks = store.marks([incident.id for incident in incidents]) if as_json else {}
        notes = _notes_of(incidents, store, now)
        notified = {id_ for id_, _ in store.notified()}
    more = len(incidents) > _MOST
    incidents = incidents[:_MOST]
    if as_json:
        listed = [
            {
                **i.document(),
                "mark": marks.get(i.id),
                "note": notes.get(i.id),
                "reaches_nobody": reaches_nobody(i, notified),
            }
            for i in incidents
        ]
        print_json({"schema_version": 1, "incidents": listed, "more": more})
        return
    rows = [
        (
            *(id_text(i.id), i.state_word, i.severity, time_text(i.started_at, now)),
            *(i.name, i.alert),
        )
        for i in incidents
    ]
    below = [notes.get(i.id, "") for i in incidents]
    print_table(HEADER, rows, below=below, headed=True)
    if lost := [i.id[:8] for i in incidents if reaches_nobody(i, notified)]:
        click.echo(_unheard(lost), err=True)
    if not incidents:
        every = everything or start is not None
        words = "no incident" if every else "no open incident (--all: resolved ones too)"
        click.echo(words, err=True)
    elif more:
        click.echo(f"the first {_MOST}; --since for fewer", err=True)


def _unheard(ids: Sequence[str]) -> str:
    """That no receiver got these incidents."""
    of_these = f"{len(ids)} of these" if len(ids) > 1 else "one of these"
    more = ", …" if len(ids) > 5 else ""
    checks = "a replay sends none; driftwatch doctor -c FILE checks the receivers"
    return f"no receiver got {of_these}: {', '.join(ids[:5])}{more} ({checks})"


def reaches_nobody(incident: Incident, notified: Collection[str]) -> bool:
    """Whether it is a page or ticket that fires, that nothing holds back, and no receiver gets.

    ``notified``: ids of open incidents whose page went to a receiver, or is to go there.
    """
    return (
        incident.is_firing
        and incident.severity != "notice"
        and incident.silenced_by is None
        and incident.id not in notified
    )


def _notes_of(incidents: Iterable[Incident], store: IncidentStore, now: datetime) -> dict[str, str]:
    """Incident → who has it, what holds it back, what is not sent; of a resolved one when."""
    from driftwatch.incidents.silence import silences_incident

    undelivered: Counter[str] = Counter()
    for record in store.outbox_records():
        undelivered[record.subject] += record.is_pending or record.is_dead
    silences, notes = store.silences(now), {}
    for one in incidents:
        held = () if one.resolved_at else silences
        ends = [silence.until for silence in held if silences_incident(silence, one)]
        held_by = None if one.resolved_at else one.inhibited_by
        met, still, told = sum(o.met for o in one.servers), len(one.concerned), one.told
        speaks = one.is_firing and not held_by
        waits = f"last true {_when(one.last_true_at, now)}" if one.state == "pending" else ""
        parts = [
            f"{met} servers" if met > 1 else "",
            f"{still} of them still" if speaks and still < met else "",
            f"until {_when(one.resolved_at, now)}" if one.resolved_at else "",
            f"waits while {held_by} fires" if held_by else waits,
            one.acknowledged_by or "",
            f"silenced until {_when(max(ends), now)}" if ends else "",
            f"{undelivered[one.id]} undelivered" if undelivered[one.id] else "",
            f"{_when(told.last_at, now)}: {told.last_problem}"
            if told and told.last_at and speaks
            else "",
        ]
        if text := "; ".join(filter(None, parts)):
            notes[one.id] = text
    return notes


def _print_history(
    store: IncidentStore, id_prefix: str, now: datetime, history: History, *, as_json: bool
) -> None:
    """State, what holds it back, then each delivery and what people did, in order of time."""
    from driftwatch.incidents.silence import silences_incident

    incident = store.incident(id_prefix)
    deliveries, actions = store.deliveries(incident.id), store.actions(incident.id)
    end = incident.resolved_at or now
    silences = [
        one
        for one in store.silences()
        if one.starts_at < end
        and one.ends_at > incident.started_at
        and silences_incident(one, incident)
    ]
    if as_json:
        data = incident.document() | {
            "deliveries": [
                one.model_copy(update={"payload": None}).document() for one in deliveries
            ],
            "actions": actions,
            "silences": [one.id for one in silences],
        }
        print_json({"schema_version": 1, "incident": data})
        return
    over = f", over {_when(incident.resolved_at, now)}" if incident.resolved_at else ""
    print_wrapped(
        f"{incident.id} {incident.state_word}: {incident.alert} {incident.name}, "
        f"{incident.severity}, began {_when(incident.started_at, now)}{over}"
    )
    for at, text in _story(incident):
        print_wrapped(f"{time_text(at, now)}  {text}")
    for text in _held_back(incident, silences, now):
        print_wrapped(text)
    timeline = sorted(
        [(one.planned_at, 1, one.id, _delivery_row(one, now)) for one in deliveries]
        + [(one.at, 0, one.id, _action_row(one)) for one in actions],
        key=lambda entry: entry[:3],
    )
    print_table(_HISTORY, [(time_text(at, now), *row) for at, _, _, row in timeline])
    if not timeline:
        why = _nobody_because(incident, history)
        print_wrapped(f"no receiver got this {incident.severity}: {why}", err=True)


def _nobody_because(incident: Incident, history: History) -> str:
    """Why no receiver got it: it has not fired, something holds it back, or nobody takes it."""
    from driftwatch.receivers.registry import subscriptions_of

    if incident.firing_at is None:
        return "it has not fired"
    if incident.silenced_by or incident.inhibited_by:
        return "it is held back"
    try:
        settings, plan = history.settings, history.plan
    except ConfigError:
        settings = None
    if settings is None:
        return "give -c FILE to read which receivers there are"
    return plan.routes_to(subscriptions_of(settings)).why_not_sent(incident)


def _story(incident: Incident) -> list[tuple[datetime, str]]:
    """What its messages said, and which servers joined and recovered when; in order of time."""
    from driftwatch.notify.advice import few

    changed = defaultdict[tuple[datetime, str], list[str]](list)
    for one in incident.servers:
        if one.met:
            changed[one.since, "true on"].append(one.key.text)
        if one.met and one.recovered:
            changed[one.last_true_at, "no longer true on"].append(one.key.text)
    joined = [
        (at, f"{what} {few(names[:NAMED_SERVERS], len(names))}")
        for (at, what), names in changed.items()
    ]
    said = [(one.at, one.summary) for one in incident.messages]
    return sorted([*joined, *said], key=lambda event: event[0])


def _when(at: datetime, now: datetime) -> str:
    """A time in a sentence: with its zone on a terminal; piped as in a table."""
    return moment(at, now.date()) if sys.stdout.isatty() else time_text(at, now)


def _held_back(incident: Incident, silences: Sequence[Silence], now: datetime) -> Iterator[str]:
    if (by := incident.acknowledgement) is not None and by.comment:
        yield f"{by.by}: {by.comment}"
    if incident.inhibited_by is not None:
        yield f"waits while {incident.inhibited_by} fires"
    for silence in silences:
        verb = "silenced" if silence.active(now) else "was silenced"
        times = f"{_when(silence.starts_at, now)} to {_when(silence.ends_at, now)}"
        why = f": {silence.comment}" if silence.comment else ""
        yield f"{verb} {times} by {silence.created_by} ({silence.id[:8]}){why}"


def _delivery_row(one: Any, now: datetime) -> tuple[str, ...]:
    again = f"repeat {one.number}" if one.event == "firing" and one.number else ""
    changed = getattr(one.payload, "changed", None) or again
    return (one.event, one.receiver, changed, status_text(one, now.date()))


def _action_row(one: Any) -> tuple[str, ...]:
    comment = f": {one.comment}" if one.comment else ""
    mark = f" {one.subject}" if one.action == "mark" else ""
    return (f"{one.action}{mark}", "", f"{one.by}{comment}", f"via {one.via}")
