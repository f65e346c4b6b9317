"""``driftwatch silence``: hold back pages that match, until a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.database import person, written
from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.options import Duration
from driftwatch.cli.output import lines, print_json, print_wrapped
from driftwatch.clock import SystemClock
from driftwatch.errors import UsageError
from driftwatch.notify.numbers import moment, utc_text

if TYPE_CHECKING:
    from driftwatch.notify.silence import Silence
    from driftwatch.store import Store

HEADER = ("ID", "UNTIL", "BY", "MATCHERS", "COMMENT")
# what every incident carries; a rule may group by other labels, which then stand in incidents
LABELS = ("alert", "engine", "instance", "model_name", "pool", "rule", "severity")
LONGEST = timedelta(days=366)


@click.command()
@click.argument("matchers", metavar="[MATCHER]...", nargs=-1)
@click.option(
    "--for", "length", type=Duration(), help="How long: 2h, 1d12h; required with MATCHER."
)
@click.option("--by", metavar="NAME", help="Who silences; default: this user.")
@click.option("--comment", metavar="TEXT", default="", help="Why.")
@click.option("--list", "listing", is_flag=True, help="List the silences that hold now.")
@click.option("--expire", metavar="ID", help="End a silence now.")
@json_option
@history_options("db", "config")
def command(
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
    those of the target (instance, engine, pool, model_name). Who got the firing page still gets
    its resolve. When the silence ends, driftwatch pages the alerts that still fire.
    """
    now = SystemClock().now()
    if listing + (expire is not None) + bool(matchers) != 1:
        raise UsageError(
            "give matchers, --list or --expire ID, one of them",
            help_text="e.g. driftwatch silence alert=BatchLimitBinding --for 2h",
        )
    if length is not None and not matchers:
        raise UsageError("--for belongs to matchers")
    if listing:
        with history.store() as store:
            _show(store.silences(now), now, as_json)
    elif expire is not None:
        with history.store() as store:
            silence = store.expire_silence(expire, now)
        _print(silence, f"silence {silence.id} ended", as_json)
    else:
        if length is None:
            raise UsageError("how long? give --for, e.g. --for 2h")
        if length > LONGEST:
            raise UsageError("--for: a silence lasts at most 366d")
        _add(matchers, now + length, by, comment, as_json, now, history)


def _add(
    texts: tuple[str, ...],
    until: datetime,
    by: str | None,
    comment: str,
    as_json: bool,
    now: datetime,
    history: History,
) -> None:
    from driftwatch.notify.silence import parse_matchers

    parsed = parse_matchers([written(text, "a matcher") for text in texts])
    name, comment = person(by), written(comment, "--comment")
    with history.store() as store:
        silence = store.add_silence(parsed, until=until, by=name, at=now, comment=comment)
        count = _matching(store, silence)
        unknown = _unknown_labels(store, silence)
    for name, close in unknown:
        hint = f"; did you mean {close}?" if close else ""
        click.echo(f"warning: no target here has a label {name}{hint}", err=True)
    matched = "no open incident" if count == 0 else f"{count} open"
    condition = " ".join(matcher.text for matcher in silence.matchers)
    _print(
        silence,
        f"silence {silence.id} until {moment(silence.until, now.date())}: {condition}; "
        f"matches {matched} now",
        as_json,
    )


def _matching(store: Store, silence: Silence) -> int:
    from driftwatch.notify.silence import labels_of, matches

    incidents = store.open_incidents().values()
    return sum(matches(silence, labels_of(incident)) for incident in incidents)


def _unknown_labels(store: Store, silence: Silence) -> list[tuple[str, str | None]]:
    """Label names that no incident carries, each with a close one that some do."""
    import difflib

    labels = set(LABELS)
    for incident in store.incidents(limit=1000):
        labels |= incident.target.keys()
    unknown = sorted({matcher.name for matcher in silence.matchers} - labels)
    return [
        (name, next(iter(difflib.get_close_matches(name, labels, n=1)), None)) for name in unknown
    ]


def _print(silence: Silence, words: str, as_json: bool) -> None:
    if as_json:
        print_json({"schema_version": 1, "silence": as_data(silence)})
    else:
        print_wrapped(words)


def _show(silences: list[Silence], now: datetime, as_json: bool) -> None:
    if as_json:
        print_json({"schema_version": 1, "silences": [as_data(silence) for silence in silences]})
        return
    if not silences:
        click.echo("no silence holds now", err=True)
        return
    short = [_row(s, s.id, moment(s.until, now.date())) for s in silences]
    full = [_row(s, s.id, utc_text(s.until)) for s in silences]
    for line in lines(HEADER, short, full):
        click.echo(line)


def _row(silence: Silence, id_: str, until: str) -> tuple[str, ...]:
    matchers = " ".join(matcher.text for matcher in silence.matchers)
    return (id_, until, silence.created_by, matchers, silence.comment)


def as_data(silence: Silence) -> dict[str, Any]:
    """A silence as JSON values."""
    return {
        "id": silence.id,
        "matchers": [matcher.text for matcher in silence.matchers],
        "until": utc_text(silence.until),
        "created_by": silence.created_by,
        "created_at": utc_text(silence.created_at),
        "comment": silence.comment,
        "expired_at": None if silence.expired_at is None else utc_text(silence.expired_at),
    }
