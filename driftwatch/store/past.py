"""The past of targets in the store: minutes, roll-ups, days, and what the detectors remember."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import polars as pl

from driftwatch.model import TargetKey
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store import compaction
from driftwatch.store import minutes as minute_rows
from driftwatch.store.checkpoints import (
    Checkpoint,
    read_checkpoint,
    read_day_starts,
    read_days,
    write_day,
)
from driftwatch.store.transactions import Transactions


class Past(Transactions):
    """Part of the store: what was. Every method is one transaction unless it says otherwise."""

    def minutes(
        self, since: datetime, until: datetime, targets: Iterable[TargetKey] | None = None
    ) -> pl.DataFrame:
        """Minutes that end in (since, until] and are still there as such, for detectors.

        Args:
            since: end of the minute before the first.
            until: end of the last one.
            targets: only these; None = all.

        Returns:
            :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, by instance, engine and end.
        """
        rows = self.past(since, until, targets)
        return rows.filter(pl.col("seconds") == minute_rows.MINUTE).select(*MINUTE_SCHEMA)

    def past(
        self, since: datetime, until: datetime, targets: Iterable[TargetKey] | None = None
    ) -> pl.DataFrame:
        """Rows that end in (since, until]: minutes where they are kept, roll-ups before that.

        Args:
            since: end of the row before the first.
            until: end of the last one.
            targets: only these; None = all.

        Returns:
            :data:`driftwatch.store.minute_columns.STORED_SCHEMA` (minutes, and what evidence said
            of them) and ``seconds`` (Float64), by instance, engine and end.
        """
        with self._reading() as connection:
            return minute_rows.read(connection, since, until, targets)

    def minutes_span(self, target: TargetKey) -> tuple[datetime, datetime] | None:
        """Start of the first stored row of a target and end of the last; None without any."""
        with self._reading() as connection:
            return minute_rows.read_span(connection, target)

    def checkpoint(self) -> Checkpoint | None:
        """The detectors' memory as it was last kept; None where it never was."""
        with self._reading() as connection:
            return read_checkpoint(connection)

    def days(self, since: datetime, until: datetime) -> pl.DataFrame:
        """Rows of the days that begin in [since, until); without a column where there is none."""
        with self._reading() as connection:
            return read_days(connection, since, until)

    def day_starts(self) -> list[datetime]:
        """Which days there are rows of, in order."""
        with self._reading() as connection:
            return read_day_starts(connection)

    def write_day(self, day: datetime, rows: pl.DataFrame) -> None:
        """Keep one day's rows, in the place of those that were there.

        Args:
            day: its start.
            rows: instance, engine, pool, day and columns of numbers.
        """
        with self._writing() as connection:
            write_day(connection, day, rows)

    def pack_minutes(self, now: datetime) -> int:
        """Pack hours that are over and roll up days that are older than two; in many transactions.

        Minutes after the last checkpoint stay as they were written, to the bit: a restart folds
        them in again.

        Args:
            now: what time it is.

        Returns:
            How many batches were replaced.
        """
        replaced = 0
        while True:
            with self._reading() as connection:
                kept = read_checkpoint(connection)
                settled = now if kept is None else min(now, kept.at)
                jobs = compaction.jobs(connection, minute_rows.hour_of(settled), now)
            for job in jobs:
                with self._reading() as connection:
                    batches = compaction.made(connection, job)
                with self._writing() as connection:
                    compaction.exchange(connection, job, batches)
                replaced += len(job.ids)
            if not jobs:
                return replaced
