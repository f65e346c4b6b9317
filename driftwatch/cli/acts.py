"""``driftwatch ack`` and ``silence``: what people do with incidents."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.database import incident_store, open_store, person, written
from driftwatch.cli.history import History
from driftwatch.cli.options import DURATION, flag, history_options, json_option, option
from driftwatch.cli.printer import (
    id_text,
    print_json,
    print_table,
    print_wrapped,
    time_text,
)
from driftwatch.clock import SystemClock
from driftwatch.errors import ConfigError, UsageError
from driftwatch.numbers import clean, moment, plural

if TYPE_CHECKING:
    from driftwatch.incidents.incident import Incident
    from driftwatch.incidents.silence import Silence
    from driftwatch.matchers import Matcher
    from driftwatch.store.people import IncidentStore


@click.command()
@click.argument("incident_id", metavar="ID")
@option("--comment", str, "Why; every receiver gets it.", metavar="TEXT", default="")
@option("--by", str, "Who acknowledges or marks; default: this user.", metavar="NAME")
@flag("--undo", "Take the acknowledgement back: repeats begin anew.")
@option(
    "--useful/--not-useful",
    None,
    "Mark the page instead, open or over: somebody had to act, or nobody had to.",
    default=None,
)
@json_option
@history_options("db", "config")
def ack_command(
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


_LISTED = 12  # names in an error
_HEADER = ("ID", "STARTS UTC", "UNTIL UTC", "BY", "MATCHERS", "COMMENT")


@click.command()
@click.argument("matchers", metavar="[MATCHER]...", nargs=-1)
@option("--for length", DURATION, "How long: 2h, 1d12h; required with MATCHER.")
@option("--by", str, "Who silences; default: this user.", metavar="NAME")
@option("--comment", str, "Why.", metavar="TEXT", default="")
@flag("--list listing", "List silences.")
@option("--expire", str, "End a silence now.", metavar="ID")
@json_option
@history_options("db", "config")
def silence_command(
    matchers: tuple[str, ...],
    length: timedelta | None,
    by: str | None,
    comment: str,
    listing: bool,
    expire: str | None,
    as_json: bool,
    history: History,
) -> None:
    """Send no firing page, ticket or notice whose labels match every MATCHER.

    A matcher is name=value, name!=value, name=~regex or name!~regex (the whole label has to
    match). Labels: alert (the name), rule (the name with the rule's own labels), severity, and
    those of the server (instance, engine, pool, model_name). A name that nothing has is refused; a
    regex also takes names that are not there yet. Who got the firing page still gets its resolve.
    When the silence ends, driftwatch pages the alerts that still fire.
    """
    from driftwatch.incidents.silence import LONGEST

    now = SystemClock().now()
    if listing + (expire is not None) + bool(matchers) != 1:
        raise UsageError(
            "give matchers, --list or --expire ID, one of them",
            help_text="e.g. driftwatch silence alert=BatchLimitBinding --for 2h",
        )
    if length and not matchers:
        raise UsageError("--for belongs to matchers")
    if matchers and length is None:
        raise UsageError("how long? give --for, e.g. --for 2h")
    if length is not None and length > LONGEST:
        raise UsageError("--for: a silence lasts at most 30d")
    with incident_store(history.db, history.config_file) as store:
        if listing:
            _print_list([one for one in store.silences() if now < one.ends_at], now, as_json)
            return
        name, why = person(by), written(comment, "--comment")
        if length is None:
            with store.one_transaction():
                silence = store.expire_silence(str(expire), now)
                store.note_action("end silence", name, now, subject=silence.id, comment=why)
            words = f"silence {silence.id} ended"
        else:
            texts = [written(text, "a matcher") for text in matchers]
            parsed = _checked_matchers(texts, store.incidents(limit=1000, pages=False), history)
            until = now + length
            with store.one_transaction():
                silence = store.add_silence(parsed, until=until, by=name, at=now, comment=why)
                store.note_action("silence", name, now, subject=silence.id, comment=why)
            words = _words(store, silence, now)
    if as_json:
        print_json({"schema_version": 1, "silence": silence.document()})
    else:
        print_wrapped(words)


def _words(store: IncidentStore, silence: Silence, now: datetime) -> str:
    from driftwatch.incidents.silence import silences_incident

    incidents = store.open_incidents().values()
    count = sum(silences_incident(silence, incident) for incident in incidents)
    matched = "no open incident" if count == 0 else plural(count, "open incident")
    condition = " ".join(matcher.text for matcher in silence.matchers)
    today = now.date()
    return (
        f"silence {silence.id} until {moment(silence.until, today)}: {condition}; "
        f"matches {matched} now"
    )


# what people call a label → its name
_LABELS = {"server": "instance", "host": "instance", "target": "instance", "model": "model_name"}
_WRITTEN = re.compile(r"\s*([\w-]+)\s*(=~|!~|!=|=|:)=?\s*(.*)")


def _checked_matchers(
    texts: Sequence[str], incidents: Sequence[Incident], history: History
) -> tuple[Matcher, ...]:
    """The matchers of these texts.

    Raises UsageError: a text is no matcher, or no server has its label or its value. The help is
    the command that was probably meant.
    """
    from driftwatch.incidents.silence import parse_matchers

    known = _names(incidents, history)
    meant = [_meant(text, known) for text in texts]
    help_text = f"did you mean: driftwatch silence {shlex.join(meant)} --for …"
    is_meant = meant != [*texts]
    try:
        matchers = parse_matchers(texts)
    except UsageError as error:
        if is_meant and "is not a matcher" in error.message:
            error.help_text = help_text
        raise
    wrong = [
        f"no server here has a label {clean(name)}; labels: {_few(known)}"
        for name in sorted({one.name for one in matchers} - known.keys())
    ]
    for one in matchers:
        names = known.get(one.name, set()) if one.operator == "=" and one.value else ()
        if names and one.value not in names:
            wrong.append(f"no {one.name} is called {clean(one.value)}; known: {_few(names)}")
    if wrong:
        regex = "to silence what is not there yet, write it as a regex: pool=~new-pool"
        raise UsageError("; ".join(wrong), help_text=help_text if is_meant else regex)
    return matchers


def _meant(text: str, known: Mapping[str, Collection[str]]) -> str:
    """The matcher that was probably meant, with labels and names that are known; else the text."""
    from driftwatch.yaml_models import SEVERITIES, nearest

    whole = [name for name, values in known.items() if text in values]
    written = _WRITTEN.fullmatch(text)
    if whole or written is None:
        return f"{whole[0]}={text}" if whole else text
    label, operator, value = written[1], written[2].replace(":", "="), written[3]
    if label not in known:
        label = _LABELS.get(label.lower()) or nearest(label.lower(), known) or label
    if label == "severity":
        value = SEVERITIES.get(value.lower(), value)
    by_lower = {one.lower(): one for one in known.get(label, ())}
    if operator == "=" and (near := nearest(value.lower(), by_lower)):
        value = by_lower[near]
    return f"{label}{operator}{value}"


def _few(names: Collection[str]) -> str:
    return ", ".join(map(clean, sorted(names)[:_LISTED])) + (", …" if len(names) > _LISTED else "")


def _names(incidents: Sequence[Incident], history: History) -> dict[str, set[str]]:
    """Label → the names that incidents, rules, pools and servers have; of a wrong configuration
    those of incidents only.
    """
    from driftwatch.incidents.silence import LABELS
    from driftwatch.pipeline.stored_state import stored_targets

    rows = [dict(labels) for one in incidents for labels in one.server_labels()]
    with suppress(ConfigError):
        rows += [{"pool": one.name} for one in history.plan.pools]
        rows += [{"severity": severity} for severity in ("page", "ticket", "notice")]
        for rule in history.plan.rules:
            rows.append({"alert": rule.alert, "rule": rule.id, **rule.labels})
        with open_store(history.db, history.config_file) as store:
            targets = history.plan_of(store).assign(stored_targets(store))
        for (instance, engine), target in targets.items():
            row = {"instance": instance, "engine": engine, "pool": target.pool or "default"}
            rows.append(row | {"model_name": target.labels.get("model_name") or ""})
    known: dict[str, set[str]] = {name: set() for name in LABELS}
    for row in rows:
        for name, value in row.items():
            known.setdefault(name, set()).update([value] if value else [])
    return known


def _print_list(silences: Sequence[Silence], now: datetime, as_json: bool) -> None:
    """Active and scheduled silences, in the order of their ends."""
    if as_json:
        listed = [silence.document() for silence in silences]
        print_json({"schema_version": 1, "silences": listed})
        return
    if not silences:
        click.echo("no silence holds now or later", err=True)
        return

    rows = [
        (
            *(id_text(one.id), time_text(one.starts_at, now), time_text(one.until, now)),
            *(one.created_by, " ".join(matcher.text for matcher in one.matchers), one.comment),
        )
        for one in silences
    ]
    print_table(_HEADER, rows)
