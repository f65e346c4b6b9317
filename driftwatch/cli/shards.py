"""``driftwatch shards``: which process watches which pools, how far it is, and what it costs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.history import History
from driftwatch.cli.history_options import history_options, json_option
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_PROBLEM
from driftwatch.cli.output import lines, print_json
from driftwatch.notify.numbers import moment, plural, utc_text

if TYPE_CHECKING:
    from driftwatch.store.members import Member
    from driftwatch.store.store import Store

HEADER = ("SHARD", "PROCESS", "POOLS", "TARGETS", "EVALUATED", "LAST TICK", "TICK TAKES")
_PROCESSES = ("PROCESS", "VERSION", "SINCE", "SHARDS", "CLOCK")
NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class ShardRow:
    """One shard as it is now."""

    shard: int
    process: str | None  # None: nobody watches it
    pools: int | None  # None: it had no tick yet
    targets: int | None
    evaluated_until: datetime | None
    ticked_at: datetime | None
    tick_seconds: float | None


@click.command()
@json_option
@history_options("db", "config")
def command(as_json: bool, history: History) -> int:
    """List the shards: who watches each, how far it is, what a tick costs; then the processes.

    With several driftwatch run on one PostgreSQL, `shards` deals the pools to them. Piped, each
    line is one shard. Exit 1 if nobody watches one, or one had no tick for 90 s.
    """
    from driftwatch.cli.database import database_of
    from driftwatch.clock import SystemClock
    from driftwatch.service.shards import unwatched
    from driftwatch.service.watch import progress_by_shard
    from driftwatch.store.store import Store

    now = SystemClock().now()
    with Store.open(database_of(history.db, history.config), migrate=False) as store:
        count = store.shard_count()
        rows = [] if count is None else shard_rows(store, count)
        silent = [] if count is None else unwatched(progress_by_shard(store), count, now)
        there = [] if count is None else store.members()
    members = [one for one in there if one.remaining_seconds > 0]
    if as_json:
        print_json(_document(rows, members))
    elif count is None:
        click.echo("one process watches all pools; `shards: 16` deals them to several", err=True)
    else:
        _print(rows, members, now)
        _warn(rows, silent)
    is_watched = not silent and all(row.process is not None for row in rows)
    return EXIT_ANSWERED if is_watched else EXIT_PROBLEM


def shard_rows(store: Store, count: int) -> list[ShardRow]:
    """Every shard, by its number."""
    from driftwatch.service.watch import progress_by_shard

    holders = {one.shard: one.holder for one in store.shard_holders() if one.remaining_seconds > 0}
    stored = progress_by_shard(store)
    rows = []
    for shard in range(count):
        progress = stored.get(shard, {})
        rows.append(
            ShardRow(
                shard,
                holders.get(shard),
                progress.get("pools"),
                progress.get("targets"),
                _time(progress.get("evaluated_until")),
                _time(progress.get("ticked_at")),
                progress.get("tick_seconds"),
            )
        )
    return rows


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _print(rows: Sequence[ShardRow], members: Sequence[Member], now: datetime) -> None:
    short = [_cells(row, now) for row in rows]
    full = [_cells(row, None) for row in rows]
    for line in lines(HEADER, short, full):
        click.echo(line)
    if not sys.stdout.isatty():
        return
    click.echo()
    each = [
        (
            one.name,
            one.version,
            moment(one.joined_at, now.date()),
            str(sum(row.process == one.name for row in rows)),
            _clock(one.clock_ahead_seconds),
        )
        for one in members
    ]
    for line in lines(_PROCESSES, each, each):
        click.echo(line)


def _warn(rows: Sequence[ShardRow], silent: Sequence[int]) -> None:
    free = [row.shard for row in rows if row.process is None]
    failing = [shard for shard in silent if shard not in free]
    for shards, sentence, help_text in (
        (free, "nobody watches {}", ""),
        (failing, "no tick of {} for 90 s", "; the log of its process has the reason"),
    ):
        if shards:
            words = sentence.format(plural(len(shards), "shard"))
            click.echo(f"{words}: {', '.join(map(str, shards))}{help_text}", err=True)


def _cells(row: ShardRow, now: datetime | None) -> tuple[str, ...]:
    def at(time: datetime | None) -> str:
        if time is None:
            return "-"
        return utc_text(time) if now is None else moment(time, now.date())

    return (
        str(row.shard),
        row.process or NOBODY,
        "-" if row.pools is None else str(row.pools),
        "-" if row.targets is None else str(row.targets),
        at(row.evaluated_until),
        at(row.ticked_at),
        "-" if row.tick_seconds is None else f"{row.tick_seconds:.2f} s",
    )


def _clock(ahead_seconds: float) -> str:
    side = "ahead" if ahead_seconds > 0 else "behind"
    return "right" if abs(ahead_seconds) < 1 else f"{abs(ahead_seconds):.0f} s {side}"


def _document(rows: Sequence[ShardRow], members: Sequence[Member]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "shards": [
            {
                "shard": row.shard,
                "process": row.process,
                "pools": row.pools,
                "targets": row.targets,
                "evaluated_until": None
                if row.evaluated_until is None
                else utc_text(row.evaluated_until),
                "ticked_at": None if row.ticked_at is None else utc_text(row.ticked_at),
                "tick_seconds": row.tick_seconds,
            }
            for row in rows
        ],
        "processes": [
            {
                "name": one.name,
                "version": one.version,
                "joined_at": utc_text(one.joined_at),
                "clock_ahead_seconds": round(one.clock_ahead_seconds, 3),
            }
            for one in members
        ],
    }
