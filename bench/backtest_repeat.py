"""Kept evidence of many days and servers, out of that of a few: renamed and shifted."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

import polars as pl

from driftwatch.backtest.archive import (
    Archive,
    ArchivedDay,
    file_of,
    put_down,
    read_manifest,
    write_frame,
    write_json,
)
from driftwatch.backtest.archive_roster import document_of
from driftwatch.backtest.archive_writer import keep
from driftwatch.collect.recordings import open_recording
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import Stretch
from driftwatch.service.configuration import plan_of

FIRST = datetime.fromisoformat("2026-10-01T00:00:00+00:00")
DAY = timedelta(days=1)


def repeated(recording: Path, folder: Path, days: int, servers: int) -> None:
    """Archives of so many days and servers: one day is written, the others are that one shifted."""
    source = open_recording(recording)
    plan = plan_of(recording / "driftwatch.yaml")
    archive = keep([source], source.span(), plan, folder.parent / "short")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    hours = pl.concat(archive.rows(day, archive.columns(day)) for day in archive.days)
    every: dict[date, ArchivedDay] = {}
    for number in range(days):
        start = FIRST + number * DAY
        rows = _day(hours, start, servers)
        write_frame(file_of(folder, start.date(), "rows"), rows)
        targets = _targets(archive, servers)
        stretch = Stretch(start, start + DAY, targets)
        roster = {"stretches": document_of([stretch])}
        write_json(file_of(folder, start.date(), "roster"), roster)
        every[start.date()] = ArchivedDay(
            start.date(), start + DAY, len(rows), len(rows), len(rows), None, ()
        )
    put_down(folder, {"repeated": str(recording)}, every)


def _day(hours: pl.DataFrame, start: datetime, servers: int) -> pl.DataFrame:
    """A whole day: the recorded hours again and again, of as many servers."""
    first, last = hours["start"].min(), hours["end"].max()
    assert isinstance(first, datetime) and isinstance(last, datetime)
    minutes = (last - first) // timedelta(minutes=1)
    names = hours["instance"].unique().sort().to_list()
    parts = []
    for copy in range(-(-servers // len(names))):
        some = names[: servers - copy * len(names)]
        own = hours.filter(pl.col("instance").is_in(some)).with_columns(
            instance=pl.col("instance").str.replace(":", f"-{copy}:", literal=True)
        )
        for part in range(-(-1440 // minutes)):
            by = start - first + part * minutes * timedelta(minutes=1)
            shifted = own.with_columns(pl.col("start") + by, pl.col("end") + by)
            parts.append(shifted.filter(pl.col("end") <= start + DAY))
    return pl.concat(parts)


def _targets(archive: Archive, servers: int) -> dict[TargetKey, Target]:
    every = archive.roster(archive.days[-1])[-1].targets
    targets = {}
    for copy in range(-(-servers // len(every))):
        for key, target in list(every.items())[: servers - copy * len(every)]:
            name = key.instance.replace(":", f"-{copy}:")
            own = TargetKey(name, key.engine)
            targets[own] = Target(own, {**target.labels, "instance": name}, target.pool)
    return {key: targets[key] for key in sorted(targets)}


def opened(folder: Path) -> Archive:
    """The archive of :func:`repeated`."""
    manifest = read_manifest(folder)
    assert manifest is not None
    days = manifest[1]
    start = datetime.fromisoformat(f"{days[0].date}T00:00:00+00:00")
    return Archive(folder, (start, days[-1].end), days)


def second(plan: Plan) -> Plan:
    """Another rule set: every ``for`` twice as long."""
    rules = tuple(replace(rule, for_seconds=2 * rule.for_seconds) for rule in plan.rules)
    return replace(plan, rules=rules)
