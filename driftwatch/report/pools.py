"""The week of a pool: requests, lengths, and its hours with what happened in them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime, timedelta

import polars as pl

from driftwatch.model import Slo, TargetKey
from driftwatch.report.cells import CELL
from driftwatch.report.changes import changed_text
from driftwatch.report.costs import missed, of_pool, total
from driftwatch.report.incidents import of_week
from driftwatch.report.lengths import HOUR, STEMS, hour_of, hourly, pool_lengths
from driftwatch.report.material import Material
from driftwatch.report.report import Event, Hours, Lengths, PoolWeek

# so many pools are drawn: those with pages and tickets, then the busiest
MOST_DRAWN = 4
# restarts and changes of one pool so close together are one event
_TOGETHER = timedelta(hours=1)
_MOST_EVENTS = 40
_NAMED = 2  # servers of an event; more are counted


def pool_rows(material: Material) -> tuple[PoolWeek, ...]:
    """A row a pool, those with most pages and tickets first, then the busiest."""
    incidents = Counter(one.pool for one in of_week(material) if one.severity != "notice")
    busy = material.cells.group_by("pool").agg(pl.col("generation_tokens_total").sum())
    ordered = sorted(
        busy.drop_nulls("pool").iter_rows(),
        key=lambda row: (-incidents[row[0]], -(row[1] or 0), row[0]),
    )
    return tuple(
        _pool(material, name, is_drawn=number < MOST_DRAWN)
        for number, (name, _) in enumerate(ordered)
    )


def _pool(material: Material, name: str, *, is_drawn: bool) -> PoolWeek:
    cells, slo = of_pool(material, name), material.slos.get(name, Slo())
    usual = material.usual.get(name)
    prompts, generations = pool_lengths(material, name)
    return PoolWeek(
        pool=name,
        servers=cells.select("instance", "engine").n_unique(),
        share=slo.share,
        requests=total(cells, "ttft_seconds_count"),
        missed=missed(material, cells),
        tuned_for=None if usual is None else usual.source,
        prompts=prompts,
        generations=generations,
        hours=_hours(material, name, cells, (prompts, generations)) if is_drawn else None,
    )


def _hours(
    material: Material, pool: str, cells: pl.DataFrame, lengths: tuple[Lengths, Lengths]
) -> Hours:
    by_hour = {
        key[0]: part for key, part in cells.group_by(hour_of().alias("hour"), maintain_order=True)
    }
    count = math.ceil((material.until - material.since) / HOUR)
    every, none = [material.since + HOUR * number for number in range(count)], cells.clear()
    parts = [by_hour.get(at, none) for at in every]
    late = [missed(material, part) for part in parts]
    speeds = [
        # what BLIND calls not judged is not drawn
        part.filter(pl.col("verdict_seconds") * 2 >= pl.col("seconds"))
        .group_by("instance", "engine")
        .agg(pl.col("speed_at_equal_load_ratio").mean())
        for part in parts
    ]
    prompts, generations = (
        hourly(stem, cells, one.usual or one.mean) for stem, one in zip(STEMS, lengths, strict=True)
    )
    return Hours(
        requests=tuple(total(part, "ttft_seconds_count") for part in parts),
        missed_low=tuple(one.low for one in late),
        missed_high=tuple(one.high for one in late),
        speed=tuple(_float(one["speed_at_equal_load_ratio"].median()) for one in speeds),
        slowest=tuple(_float(one["speed_at_equal_load_ratio"].min()) for one in speeds),
        prompts=tuple(prompts.get(at) for at in every),
        generations=tuple(generations.get(at) for at in every),
        events=tuple(_events(material, pool, cells)),
    )


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _events(material: Material, pool: str, cells: pl.DataFrame) -> list[Event]:
    """Changes and restarts of a pool; the same of several servers close together is one event."""
    again = cells.filter(pl.col("restarted").fill_null(False)).select("instance", "engine", "end")
    found = [("restarted", end - CELL, TargetKey(i, e)) for i, e, end in again.iter_rows()]
    found += [
        (f": {changed_text([one])}", one.change.at, TargetKey(one.instance, one.engine))
        for one in material.verifications
        if one.pool == pool and material.since <= one.change.at < material.until
    ]
    groups: list[tuple[str, list[datetime], dict[str, None]]] = []
    for what, at, key in sorted(found):
        if not groups or groups[-1][0] != what or at - groups[-1][1][-1] >= _TOGETHER:
            groups.append((what, [], {}))
        groups[-1][1].append(at)
        groups[-1][2][key.text] = None
    events = []
    for what, times, names in groups:
        servers = " and ".join(names) if len(names) <= _NAMED else f"{len(names)} servers"
        until = f" {times[0]:%H:%M}–{times[-1] + CELL:%H:%M}" if what == "restarted" else ""
        events.append(Event(at=times[0], what=f"{servers} {what}{until}".replace(" :", ":")))
    return sorted(events, key=lambda one: one.at)[:_MOST_EVENTS]
