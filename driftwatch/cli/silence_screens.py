"""What ``driftwatch silence`` prints: the list, and what a silence would hold back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from driftwatch.cli.incidents import HEADER as INCIDENT_HEADER
from driftwatch.cli.incidents import as_data, full_row, short_row
from driftwatch.cli.output import lines, print_json
from driftwatch.notify.numbers import moment, plural, utc_text
from driftwatch.notify.occasion import silence_json

if TYPE_CHECKING:
    from driftwatch.cli.history import History
    from driftwatch.incidents.silence import Silence
    from driftwatch.matchers import Matcher
    from driftwatch.store import Store

HEADER = ("ID", "STARTS UTC", "UNTIL UTC", "BY", "MATCHERS", "COMMENT")
PREVIEWED = timedelta(days=7)


def print_list(silences: Sequence[Silence], now: datetime, as_json: bool) -> None:
    """Those that hold, and those that are scheduled; the one that ends first first."""
    if as_json:
        listed = [silence_json(silence) for silence in silences]
        print_json({"schema_version": 1, "silences": listed})
        return
    if not silences:
        click.echo("no silence holds now or later", err=True)
        return
    short = [
        _row(
            one,
            one.id[:8],
            "active" if one.starts_at <= now else _bare(one.starts_at, now),
            _bare(one.until, now),
        )
        for one in silences
    ]
    full = [_row(s, s.id, utc_text(s.starts_at), utc_text(s.until)) for s in silences]
    for line in lines(HEADER, short, full):
        click.echo(line)


def print_preview(
    store: Store, matchers: tuple[Matcher, ...], now: datetime, as_json: bool
) -> None:
    """The open incidents that match, and those of the last days."""
    from driftwatch.incidents.silence import would_hold_back

    since = now - PREVIEWED
    matching = would_hold_back(store.incidents(since=since, limit=100_000), matchers, since)
    open_now = sum(incident.state != "resolved" for incident in matching)
    if as_json:
        listed = [as_data(incident) for incident in matching]
        print_json({"schema_version": 1, "open": open_now, "incidents": listed})
        return
    past = len(matching) - open_now
    click.echo(
        f"would hold back {plural(open_now, 'open incident')} now, and would have held back "
        f"{past} of the last 7 d; nothing is written",
        err=True,
    )
    short, full = [short_row(i, now) for i in matching], [full_row(i) for i in matching]
    for line in lines(INCIDENT_HEADER, short, full):
        click.echo(line)


def unknown_labels(store: Store, matchers: Sequence[Matcher]) -> list[tuple[str, str | None]]:
    """Label names that no incident carries, each with a close one that some do."""
    from driftwatch.incidents.silence import unknown_label_names

    return unknown_label_names(store.incidents(limit=1000, pages=False), matchers)


def unknown_alerts(
    store: Store, matchers: Sequence[Matcher], history: History
) -> list[tuple[str, str]]:
    """Alerts that a silence names and that neither a rule nor an incident has, each with a hint.

    Raises: as :attr:`History.plan`.
    """
    from driftwatch.yaml_models import near

    named = {one.value for one in matchers if (one.name, one.operator) == ("alert", "=")}
    if not named:
        return []
    of_incidents = {one.alert for one in store.incidents(limit=1000, pages=False)}
    if named <= of_incidents:
        return []
    alerts = of_incidents | {rule.alert for rule in history.plan.rules}
    return [
        (name, near(name, alerts) or f"alerts: {', '.join(sorted(alerts))}")
        for name in sorted(named - alerts)
    ]


def _bare(at: datetime, now: datetime) -> str:
    """Without the zone, which the header has."""
    return moment(at, now.date()).removesuffix(" UTC")


def _row(silence: Silence, id_: str, starts: str, until: str) -> tuple[str, ...]:
    matchers = " ".join(matcher.text for matcher in silence.matchers)
    return (id_, starts, until, silence.created_by, matchers, silence.comment)
