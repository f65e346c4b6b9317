"""Whole rows of some targets, and their last hour, out of kept evidence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import polars as pl

from driftwatch.backtest.archive import Archive, Day
from driftwatch.model import TargetKey
from driftwatch.pipeline.minutes import RECENT_SCHEMA, SPEED_SCHEMA, PastMinutes
from driftwatch.signals.minutes import minutes

_CARRIED = timedelta(minutes=65)
_MOST_TARGETS = 32  # whose whole rows of a day are held at once: some 6 MB each


class WholeRows:
    """Every column of the rows of targets, a day and the hour before it; read when asked for."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._day: Day | None = None
        self._rows: dict[tuple[Day, TargetKey], pl.DataFrame] = {}

    def open(self, day: Day) -> None:
        """Go on to a day, of which all is read; what was read of another is let go.

        What a page says and an answer that is kept do not depend on where the span begins.
        """
        whole = next(one for one in self._archive.whole_days if one.date == day.date)
        if whole != self._day:
            self._day, self._rows = whole, {}

    def of(self, keys: Collection[TargetKey], since: datetime) -> pl.DataFrame:
        """The rows of these targets whose minutes end later, by target and end.

        Raises ValueError: no day is open.
        """
        wanted = sorted(set(keys))
        rows = [self._of_day(day, wanted) for day in self._days(since)]
        return pl.concat(rows, how="diagonal").filter(pl.col("end") > since)

    def _days(self, since: datetime) -> list[Day]:
        """The open day, and the one before it where it reaches that far back."""
        if self._day is None:
            raise ValueError("no day is open")
        if since >= self._day.start:
            return [self._day]
        before = [day for day in self._archive.whole_days if day.end <= self._day.start]
        return [day for day in before[-1:] if day.end > since] + [self._day]

    def _of_day(self, day: Day, wanted: Sequence[TargetKey]) -> pl.DataFrame:
        missing = [key for key in wanted if (day, key) not in self._rows]
        if missing:
            if len(self._rows) + len(missing) > _MOST_TARGETS:
                self._rows = {one: rows for one, rows in self._rows.items() if one[1] in wanted}
            rows = self._archive.rows(day, self._archive.columns(day), missing)
            if self._day is not None and day != self._day:
                rows = rows.filter(pl.col("end") > self._day.start - _CARRIED)
            parts = rows.partition_by("instance", "engine", as_dict=True, maintain_order=True)
            for key in missing:
                self._rows[day, key] = parts.get(tuple(key), rows.clear())
        return pl.concat([self._rows[day, key] for key in wanted], how="diagonal")


class ArchivedMinutes(PastMinutes):
    """Minutes of one target at a time, of whole rows that were kept."""

    def __init__(self, rows: WholeRows) -> None:
        super().__init__()
        self._whole = rows

    def _joined(self, key: TargetKey, since: datetime, until: datetime) -> pl.DataFrame:
        rows = self._whole.of([key], since).filter(pl.col("end") <= until)
        speeds = rows.select(pl.col(name).cast(dtype) for name, dtype in SPEED_SCHEMA.items())
        return minutes(rows).hstack(speeds).select(*RECENT_SCHEMA).sort("end")


def row_at(rows: pl.DataFrame, end: datetime) -> dict[str, object]:
    """The row of a minute; empty where there is none."""
    of_minute = rows.filter(pl.col("end") == end)
    return of_minute.row(0, named=True) if len(of_minute) else {}
