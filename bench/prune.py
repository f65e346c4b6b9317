"""What pruning a day costs on PostgreSQL: partitions dropped against rows deleted, side by side.

    python bench/prune.py [--days N] [--rows N] [--kilobytes N]

Fills the partitioned minute_batches through the store's own writes, and a plain table of the same
columns and index with the same rows. Then, day after day, one day is added and the oldest pruned:
by the store, and by DELETE, once with autovacuum's work done by hand (VACUUM) and its time in. The
server is a PostgreSQL of its own on this machine's disk, with fsync as it should be.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, insert, text

from driftwatch.store import Store
from driftwatch.store.partitions import make_days, prune_table
from driftwatch.store.tables import minute_batches
from driftwatch.testing.postgres_server import PostgresServer

DAY = timedelta(days=1)
START = datetime(2026, 3, 1, tzinfo=UTC)
_SAFE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
_COLUMNS = "since, until, seconds, packed, first_instance, last_instance, frame"


def add_day(connection: Connection, day: int, rows: int, size: int) -> None:
    """The same rows into both tables."""
    start = START + day * DAY
    gap = DAY / rows
    batches = [
        {
            "since": start + n * gap,
            "until": start + (n + 0.5) * gap,
            "seconds": 60,
            "packed": 1,
            "first_instance": f"host-{n}:8000",
            "last_instance": f"host-{n}:8000",
            "frame": os.urandom(size),
        }
        for n in range(rows)
    ]
    make_days(connection, minute_batches, [start])
    connection.execute(insert(minute_batches), batches)
    connection.execute(
        text(f"INSERT INTO plain ({_COLUMNS}) SELECT {_COLUMNS} FROM minute_batches "
             "WHERE until >= :start"), {"start": start}
    )  # fmt: skip


def bytes_of(server: PostgresServer, name: str, tables: str) -> int:
    """Of tables, their indexes and TOAST."""
    query = (
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
        f"WHERE relkind = 'r' AND relname ~ '{tables}'"
    )
    return int(server.query(query, name)[0][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--kilobytes", type=int, default=24)
    options = parser.parse_args()
    size = options.kilobytes * 1024
    dropped: list[float] = []
    deleted: list[float] = []
    vacuumed: list[float] = []
    with PostgresServer(_SAFE) as server:
        name = server.new_database()
        with Store.open(server.url(name)) as store:
            with store._writing() as connection:
                like = "LIKE minute_batches INCLUDING DEFAULTS INCLUDING STORAGE"
                connection.execute(text(f"CREATE TABLE plain ({like}, PRIMARY KEY (id))"))
                connection.execute(text("CREATE INDEX ON plain (until)"))
            for day in range(options.days):
                with store._writing() as connection:
                    add_day(connection, day, options.rows, size)
            server.query("CHECKPOINT", name)
            for day in range(options.days):
                before = START + (day + 1) * DAY
                began = time.perf_counter()
                with store._writing() as connection:
                    prune_table(connection, minute_batches, before)
                dropped.append(time.perf_counter() - began)
                began = time.perf_counter()
                with store._writing() as connection:
                    query = text("DELETE FROM plain WHERE until <= :before")
                    connection.execute(query, {"before": before})
                deleted.append(time.perf_counter() - began)
                began = time.perf_counter()
                server.query("VACUUM plain", name)
                vacuumed.append(time.perf_counter() - began)
                with store._writing() as connection:
                    add_day(connection, options.days + day, options.rows, size)
        partitions, plain = (bytes_of(server, name, of) for of in ("^minute_batches", "^plain"))
    print(f"{options.rows} batches of {options.kilobytes} kB a day, {options.days} days kept")
    for what, seconds in (("drop", dropped), ("delete", deleted), ("vacuum after", vacuumed)):
        print(f"{what:>12}: {1e3 * sorted(seconds)[len(seconds) // 2]:8.1f} ms median of a day")
    both = sum(deleted) + sum(vacuumed)
    print(f"drop takes {sum(dropped) / both:.3f} of the time of delete and vacuum")
    print(f"after it: {partitions / 2**20:.0f} MiB in partitions, {plain / 2**20:.0f} MiB plain")


if __name__ == "__main__":
    main()
