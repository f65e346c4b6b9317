"""Bytes of a server-day in the store, table by table, and what committing and packing cost.

    python bench/store.py RECORDING [--days N] [--hours N] [--servers N ...] [--month]

RECORDING is a compact recording of a fleet (`driftwatch fleet` writes one, with its
driftwatch.yaml); its first N days (3 unless told) are replayed with all detectors and a pin that
driftwatch takes itself, so that their columns say something. Every server's last day is then one
server of the fleets that are measured, which commit it minute by minute as the service does. Where
a fleet is larger than there are server-days, days are taken again an hour later: no batch holds
the same minute twice.

Goal: 300 kB for a server-day that is over, in all: minutes, scrapes of one hour, the detectors'
checkpoint.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
from sqlalchemy import select

from driftwatch.cli.options import plan_from
from driftwatch.cli.proposal_notice import with_proposals
from driftwatch.collect.recordings.compact import CompactRecordingSource
from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.stage import Memory, detect
from driftwatch.model import TargetKey
from driftwatch.pipeline.replay import replay
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store import Store, TickRecord
from driftwatch.store.frames import pack, to_arrow
from driftwatch.store.history import Checkpoint
from driftwatch.store.minute_columns import SIGNIFICANT_BITS, stored_rows
from driftwatch.store.minutes import PACKED, insert_batch
from driftwatch.store.tables import minute_batches

GOAL = 300_000
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
RAW = timedelta(hours=1)  # the default of `retention`
TICK = timedelta(seconds=15)
_TABLES = ("minute_batches", "scrape_batches", "gpu_batches", "checkpoint", "day_batches")


@dataclass
class Material:
    """What is committed.

    Attributes:
        days: one frame of stored minutes per server-day, all on the same day.
        scrapes: of one server, the last hour of that day.
        gpus: likewise.
        checkpoint: the detectors' memory of all servers of the recording.
        servers: how many those are.
        interval: seconds between two scrapes.
    """

    days: list[pl.DataFrame]
    scrapes: list[pl.DataFrame]
    gpus: list[pl.DataFrame]
    checkpoint: dict[str, bytes]
    servers: int
    interval: float


@dataclass
class Fleet:
    """What one fleet cost; bytes of all of it."""

    commits: list[float] = field(default_factory=list)
    packing: float = 0.0
    rolling: float = 0.0
    reading: float = 0.0
    tables: dict[str, int] = field(default_factory=dict)
    rolled: int = 0
    month: int = 0  # bytes of 28 such days and two of minutes
    month_reading: list[float] = field(default_factory=list)  # of one server, of ten


def material(folder: Path, days: int) -> Material:
    """Replay the recording and cut its last day into server-days."""
    plan = with_proposals(plan_from(config=folder / "driftwatch.yaml"))
    source = CompactRecordingSource(folder)
    since, until = source.span()
    until = min(until, since + timedelta(days=days))
    parts = [stored_rows(o.rows) for o in replay([source], (since, until), plan)]
    rows = pl.concat([p for p in parts if len(p)]).sort("instance", "engine", "end")
    _, memory = detect(rows.select(*MINUTE_SCHEMA), Memory(), Baselines(), plan.detection)
    last = rows["end"].max()
    assert isinstance(last, datetime)
    end = last.replace(hour=0, minute=0)
    found = []
    # every day but the first: a pin is taken from that one
    for back in range(days - 1):
        shift = back * DAY
        one = rows.filter(
            (pl.col("end") > end - shift - DAY) & (pl.col("end") <= end - shift)
        ).with_columns(end=pl.col("end") + shift)
        found += one.partition_by("instance", "engine", maintain_order=True)
    collected = source.collect(end - RAW, end)
    scrapes = collected.scrapes.partition_by("instance", maintain_order=True)
    gaps = scrapes[0]["time"].diff().drop_nulls().dt.total_seconds().cast(pl.Float64)
    gap = gaps.median()
    gpus = (
        collected.gpus.partition_by("exporter", maintain_order=True) if len(collected.gpus) else []
    )
    source.close()
    return Material(
        found,
        scrapes,
        gpus,
        {name: to_arrow(frame) for name, frame in memory.frames()},
        rows["instance"].n_unique(),
        gap if isinstance(gap, float) else 0.0,
    )


def fleet_of(days: Sequence[pl.DataFrame], servers: int) -> pl.DataFrame:
    """So many servers, named in order; those that come again do so an hour later in the day."""
    found = []
    for n in range(servers):
        again, which = divmod(n, len(days))
        one = days[which]
        start = one["end"].dt.truncate("1d").min()
        assert isinstance(start, datetime)
        later = pl.col("end") + timedelta(hours=again)
        over = later > start + DAY
        found.append(
            one.with_columns(
                instance=pl.lit(f"host-{n:04d}.example.internal:8000"),
                end=pl.when(over).then(later - DAY).otherwise(later),
            )
        )
    return pl.concat(found).sort("instance", "engine", "end")


def measure(what: Material, servers: int, hours: int, path: Path, *, month: bool) -> Fleet:
    """Commit, pack and roll up a day of a fleet; ``month``: with 27 like it before."""
    found = Fleet()
    rows = fleet_of(what.days, servers)
    begin = rows["end"].min()
    assert isinstance(begin, datetime)
    begin = begin.replace(hour=0, minute=0)
    end = begin + timedelta(hours=hours)
    rows = rows.filter((pl.col("end") > begin) & (pl.col("end") <= end))
    with Store.open(path) as store:
        for (at,), minute in rows.sort("end").group_by("end", maintain_order=True):
            assert isinstance(at, datetime)
            began = time.perf_counter()
            commit(store, at, minutes=minute.sort("instance", "engine"))
            found.commits.append(time.perf_counter() - began)
            if at.minute == 0:
                commit(store, at, checkpoint=Checkpoint(at, {}))
                began = time.perf_counter()
                store.pack_minutes(at)
                found.packing += time.perf_counter() - began
        found.tables = sizes(path)
        raw(store, what, servers, begin)
        scale = servers / what.servers
        commit(store, end, checkpoint=Checkpoint(end, what.checkpoint))
        after = sizes(path)
        found.tables["scrape_batches"] = after["scrape_batches"]
        found.tables["gpu_batches"] = after["gpu_batches"]
        found.tables["checkpoint"] = round(after["checkpoint"] * scale)
        began = time.perf_counter()
        store.past(begin, end, [one_of(rows)])
        found.reading = time.perf_counter() - began
        commit(store, end, checkpoint=Checkpoint(begin + 9 * DAY, {}))
        began = time.perf_counter()
        store.pack_minutes(begin + 4 * DAY)
        found.rolling = time.perf_counter() - began
        found.rolled = sizes(path)["minute_batches"]
        if month:
            repeated(store, begin, rows["instance"].n_unique())
            found.month = sizes(path)["minute_batches"] + 2 * found.tables["minute_batches"]
            for targets in (1, 10):
                some = [TargetKey(*key) for key in rows.select(KEY_COLUMNS).unique().sort(
                    KEY_COLUMNS).head(targets).iter_rows()]  # fmt: skip
                began = time.perf_counter()
                past = store.past(begin - 27 * DAY, end, some)
                found.month_reading.append(time.perf_counter() - began)
                assert past["end"].dt.truncate("1d").n_unique() >= 28
    return found


def repeated(store: Store, begin: datetime, servers: int) -> None:
    """The rolled up day on each of the 27 days before it, in batches as large as its own."""
    day = store.past(begin, begin + DAY)
    seconds = int(day["seconds"][0])
    assert (day["seconds"] == seconds).all() and day["instance"].n_unique() == servers
    with store._reading() as connection:
        batches = connection.execute(
            select(minute_batches.c.first_instance, minute_batches.c.last_instance)
        ).all()
    for back in range(1, 28):
        with store._writing() as connection:
            for first, last in batches:
                rows = day.drop("seconds").filter(
                    pl.col("instance").is_between(pl.lit(first), pl.lit(last))
                )
                rows = rows.with_columns(pl.col("end") - back * DAY)
                insert_batch(connection, rows, pack(rows, SIGNIFICANT_BITS), PACKED, seconds, None)


def one_of(rows: pl.DataFrame) -> TargetKey:
    """The first target."""
    return TargetKey(rows["instance"][0], rows["engine"][0])


def raw(store: Store, what: Material, servers: int, begin: datetime) -> None:
    """An hour of scrapes and readings, tick by tick."""
    scrapes = pl.concat(
        [
            what.scrapes[n % len(what.scrapes)].with_columns(
                instance=pl.lit(f"host-{n:04d}.example.internal:8000")
            )
            for n in range(servers)
        ]
    )
    gpus = None
    if what.gpus:
        gpus = pl.concat(
            [
                what.gpus[n % len(what.gpus)].with_columns(exporter=pl.lit(f"host-{n:04d}:9400"))
                for n in range(servers)
            ]
        )
    start = scrapes["time"].min()
    assert isinstance(start, datetime)
    at = start
    while at < start + RAW:
        inside = pl.col("time").is_between(at, at + TICK, closed="left")
        some = scrapes.filter(inside)
        read = None if gpus is None else gpus.filter(inside)
        commit(store, at, scrapes=some, gpus=read)
        at += TICK


def commit(
    store: Store,
    at: datetime,
    *,
    minutes: pl.DataFrame | None = None,
    checkpoint: Checkpoint | None = None,
    scrapes: pl.DataFrame | None = None,
    gpus: pl.DataFrame | None = None,
) -> None:
    """A tick with nothing else in it."""
    store.commit_tick(
        TickRecord(
            scrapes=scrapes,
            since=at,
            until=at + TICK,
            gpus=gpus,
            minutes=minutes,
            checkpoint=checkpoint,
        )
    )


def sizes(path: Path) -> dict[str, int]:
    """Bytes of each table's frames."""
    connection = sqlite3.connect(path)
    found = {}
    for table in _TABLES:
        (size,) = connection.execute(f"SELECT sum(length(frame)) FROM {table}").fetchone()
        found[table] = int(size or 0)
    connection.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recording", type=Path)
    parser.add_argument("--servers", nargs="+", type=int, default=[1, 20, 200])
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--month", action="store_true", help="read over a month, too")
    asked = parser.parse_args()
    began = time.perf_counter()
    what = material(asked.recording, asked.days)
    print(
        f"{asked.recording.name}: {len(what.days)} server-days of {what.servers} servers, a scrape "
        f"each {what.interval:.0f} s; read in {time.perf_counter() - began:.0f} s; "
        f"{platform.machine()}, {os.cpu_count()} cores, Polars {pl.__version__}"
    )
    said = what.days[0]
    known = [c for c in said.columns if said[c].null_count() < len(said)]
    print(f"columns that are known at some time: {len(known)} of {said.width}")
    print("kB per server-day (a server: scrapes, GPU readings, checkpoint)")
    header = ("servers", "minutes", "10-min rows", "scrapes", "gpus", "checkpoint", "in all")
    print(
        "  ".join(f"{h:>11}" for h in (*header, "commit ms", "worst", "pack s", "roll s", "read s"))
    )
    worst = 0.0
    for servers in asked.servers:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "driftwatch.db"
            fleet = measure(what, servers, asked.hours, path, month=asked.month)
        days = servers * asked.hours / 24
        t = fleet.tables
        per_day = t["minute_batches"] / days
        per_server = [t[c] / servers for c in ("scrape_batches", "gpu_batches", "checkpoint")]
        whole = per_day + sum(per_server)
        worst = max(worst, whole)
        cells = [per_day, fleet.rolled / days, *per_server, whole]
        print(
            f"{servers:>11}  "
            + "  ".join(f"{cell / 1000:>11.1f}" for cell in cells)
            + f"  {statistics.median(fleet.commits) * 1e3:>11.0f}"
            + f"  {max(fleet.commits) * 1e3:>11.0f}"
            + f"  {fleet.packing:>11.1f}  {fleet.rolling:>11.1f}  {fleet.reading:>11.2f}",
            flush=True,
        )
        if fleet.month:
            one, ten = fleet.month_reading
            print(
                f"a month {fleet.month / 1e9:.2f} GB; read of 1 server {one:.2f} s, 10 {ten:.2f} s"
            )
    print(f"goal {GOAL / 1000:.0f} kB: {'reached' if worst <= GOAL else 'MISSED'}")


if __name__ == "__main__":
    main()
