"""``driftwatch silence``: hold back pages that match, until a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from driftwatch.cli.database import incident_store, person, written
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.options import Duration, Time
from driftwatch.cli.printer import (
    id_text,
    print_json,
    print_table,
    print_warning,
    print_wrapped,
    time_text,
)
from driftwatch.clock import SystemClock
from driftwatch.errors import UsageError
from driftwatch.numbers import clean, moment, plural

if TYPE_CHECKING:
    from driftwatch.incidents.silence import Silence
    from driftwatch.matchers import Matcher
    from driftwatch.store.people import IncidentStore

LONGEST = timedelta(days=366)
HEADER = ("ID", "STARTS UTC", "UNTIL UTC", "BY", "MATCHERS", "COMMENT")


@click.command()
@click.argument("matchers", metavar="[MATCHER]...", nargs=-1)
@click.option(
    "--for", "length", type=Duration(), help="How long: 2h, 1d12h; required with MATCHER."
)
@click.option("--start", type=Time(), help="When it begins: 2026-11-24T02:00Z; default: now.")
@click.option("--by", metavar="NAME", help="Who silences; default: this user.")
@click.option("--comment", metavar="TEXT", default="", help="Why.")
@click.option("--list", "listing", is_flag=True, help="List silences, scheduled ones as well.")
@click.option("--expire", metavar="ID", help="End a silence now.")
@json_option
@history_options("db", "config")
def command(
    matchers: tuple[str, ...],
    length: timedelta | None,
    start: datetime | None,
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
    those of the target (instance, engine, pool, model_name). Who got the firing page still gets
    its resolve. When the silence ends, driftwatch pages the alerts that still fire.
    """
    now = SystemClock().now()
    if listing + (expire is not None) + bool(matchers) != 1:
        raise UsageError(
            "give matchers, --list or --expire ID, one of them",
            help_text="e.g. driftwatch silence alert=BatchLimitBinding --for 2h",
        )
    if (length or start) and not matchers:
        raise UsageError("--for and --start belong to matchers")
    if listing:
        with incident_store(history.db, history.config_file) as store:
            _print_list([one for one in store.silences() if now < one.ends_at], now, as_json)
        return
    if expire is not None:
        with incident_store(history.db, history.config_file) as store:
            name, why = person(by), written(comment, "--comment")
            with store.one_transaction():
                silence = store.expire_silence(expire, now)
                store.note_action("end silence", name, now, subject=silence.id, comment=why)
        _print(silence, f"silence {silence.id} ended", as_json)
        return
    if length is None:
        raise UsageError("how long? give --for, e.g. --for 2h")
    if length > LONGEST:
        raise UsageError("--for: a silence lasts at most 366d")
    parsed = _parsed(matchers)
    with incident_store(history.db, history.config_file) as store:
        silence = _added(store, parsed, start, length, by, comment, now)
        words = _words(store, silence, now)
        warnings = [*_unknown_labels(store, silence), *_unknown_values(store, silence, history)]
    for warning in warnings:
        print_warning(warning)
    _print(silence, words, as_json)


def _parsed(texts: tuple[str, ...]) -> tuple[Matcher, ...]:
    from driftwatch.incidents.silence import parse_matchers

    return parse_matchers([written(text, "a matcher") for text in texts])


def _added(
    store: IncidentStore,
    matchers: tuple[Matcher, ...],
    start: datetime | None,
    length: timedelta,
    by: str | None,
    comment: str,
    now: datetime,
) -> Silence:
    if start is not None and not now - timedelta(minutes=1) <= start <= now + LONGEST:
        raise UsageError("--start: a silence begins now, or later within 366d")
    name, comment = person(by), written(comment, "--comment")
    until = max(start or now, now) + length
    with store.one_transaction():
        silence = store.add_silence(
            matchers, until=until, by=name, at=now, comment=comment, starts_at=start
        )
        store.note_action("silence", name, now, subject=silence.id, comment=comment)
    return silence


def _words(store: IncidentStore, silence: Silence, now: datetime) -> str:
    from driftwatch.incidents.silence import silences_incident

    incidents = store.open_incidents().values()
    count = sum(silences_incident(silence, incident) for incident in incidents)
    matched = "no open incident" if count == 0 else plural(count, "open incident")
    condition = " ".join(matcher.text for matcher in silence.matchers)
    today = now.date()
    since = f" from {moment(silence.starts_at, today)}" if silence.starts_at > now else ""
    return (
        f"silence {silence.id}{since} until {moment(silence.until, today)}: {condition}; "
        f"matches {matched} now"
    )


def _unknown_labels(store: IncidentStore, silence: Silence) -> Iterator[str]:
    """Label names that no incident carries, each with a close one that some do."""
    from driftwatch.incidents.silence import unknown_label_names

    incidents = store.incidents(limit=1000, pages=False)
    for name, close in unknown_label_names(incidents, silence.matchers):
        hint = f"; did you mean {close}?" if close else ""
        yield f"no target here has a label {name}{hint}"


def _unknown_values(store: IncidentStore, silence: Silence, history: History) -> Iterator[str]:
    """Alerts that it names and that neither a rule nor an incident has; misspelt pools.

    Raises: as :attr:`History.plan`.
    """
    from driftwatch.yaml_models import near

    equal = [(one.name, one.value) for one in silence.matchers if one.operator == "="]
    named = {value for name, value in equal if name == "alert"}
    alerts = {one.alert for one in store.incidents(limit=1000, pages=False)}
    pools = {value for name, value in equal if name == "pool"}
    if named <= alerts and not pools:
        return
    plan = history.plan
    alerts |= {rule.alert for rule in plan.rules}
    for name in sorted(named - alerts):
        hint = near(name, alerts) or f"alerts: {', '.join(sorted(alerts))}"
        yield f"no rule has the alert {clean(name)}; {hint}"
    configured = {pool.name for pool in plan.pools}
    for name in sorted(pools - configured):
        # labels make pools too: one that is like no configured one is no mistake
        if (meant := near(name, configured)) is not None:
            yield f"no pool of the configuration is called {clean(name)}; {meant}"


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
    print_table(HEADER, rows)


def _print(silence: Silence, words: str, as_json: bool) -> None:
    if as_json:
        print_json({"schema_version": 1, "silence": silence.document()})
    else:
        print_wrapped(words)
