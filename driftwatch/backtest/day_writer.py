"""One day of kept evidence, written as it comes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import polars as pl

from driftwatch.backtest.archive import ArchivedDay, file_of, whole, write_frame, write_json
from driftwatch.backtest.archive_roster import document_of, joined_up
from driftwatch.collect.schema import SourceProblem
from driftwatch.pipeline.question import CAPACITY
from driftwatch.pipeline.state import CAPACITY_REASON, Outcome, Stretch

_MOST_PROBLEMS = 20
# A group is held in memory while the day's file is written: 16,384 rows are some 70 MB.
_ROW_GROUP = 16_384
_NOT_KEPT = (*CAPACITY, CAPACITY_REASON)


class DayWriter:
    """One day: parts as they come, one file of each kind at the end."""

    def __init__(self, folder: Path, day: datetime) -> None:
        self._folder, self._day = folder, day
        self._parts = folder / f"{day.date()}.{os.getpid()}.parts"
        self._rows: list[Path] = []
        self._gpus: list[pl.DataFrame] = []
        self._stretches: list[Stretch] = []
        self._counted = _Counted()
        self._height = 0

    def add(self, outcome: Outcome) -> None:
        """What a stretch of the day brought."""
        self._counted.add(outcome)
        self.add_stretches(outcome.stretches)
        self.add_gpus(outcome.gpus)
        if len(outcome.rows):
            self.add_rows(outcome.rows.hstack(outcome.judged))

    def add_rows(self, rows: pl.DataFrame, usable: int = 0) -> None:
        """Evidence rows with what verdicts take besides, made of so many more usable scrapes."""
        if rows.is_empty():
            return
        self._parts.mkdir(exist_ok=True)
        part = self._parts / f"{len(self._rows):06}.parquet"
        rows = rows.drop(_NOT_KEPT, strict=False)
        with whole(part) as beside:
            rows.write_parquet(beside, compression="lz4", statistics=False)
        self._rows.append(part)
        self._height += len(rows)
        self._counted.usable += usable

    def add_gpus(self, gpus: pl.DataFrame) -> None:
        """GPU readings."""
        if len(gpus):
            self._gpus.append(gpus)

    def add_stretches(self, stretches: Sequence[Stretch]) -> None:
        """Who was there, in order."""
        self._stretches += stretches

    def close(self, until: datetime) -> ArchivedDay:
        """Write the day's files."""
        of = self._day.date()
        if self._rows:
            with whole(file_of(self._folder, of, "rows")) as beside:
                pl.scan_parquet(self._rows).sink_parquet(
                    beside, compression="zstd", compression_level=3, row_group_size=_ROW_GROUP
                )
        if self._gpus:
            write_frame(file_of(self._folder, of, "gpus"), pl.concat(self._gpus))
        stretches = document_of(joined_up(self._stretches))
        write_json(file_of(self._folder, of, "roster"), {"stretches": stretches})
        counted = self._counted
        return ArchivedDay(
            date=of,
            end=until,
            rows=self._height,
            scrapes=counted.scrapes,
            usable=counted.usable,
            reason=counted.reason,
            problems=tuple(counted.problems[:_MOST_PROBLEMS]),
        )

    def forget(self) -> None:
        """Delete the parts."""
        shutil.rmtree(self._parts, ignore_errors=True)


@dataclass
class _Counted:
    scrapes: int = 0
    usable: int = 0
    reason: str | None = None
    problems: list[SourceProblem] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        ok = outcome.scrapes["ok"]
        self.scrapes += len(ok)
        self.usable += int(ok.sum())
        if self.reason is None and not ok.all():
            failed = outcome.scrapes.filter(~ok)["reason"].drop_nulls()
            self.reason = failed[0] if len(failed) else None
        new = {p.reason for p in self.problems}
        self.problems += [p for p in outcome.problems if p.reason not in new]
