"""The week of a pool: requests, lengths, and its hours with what happened in them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import polars as pl

from driftwatch.model import Slo, TargetKey
from driftwatch.report.cells import CELL
from driftwatch.report.costs import missed, of_pool, total
from driftwatch.report.incidents import of_week
from driftwatch.report.lengths import HOUR, STEMS, hour_of, hourly, pool_lengths
from driftwatch.report.material import Material
from driftwatch.report.moved import done_text
from driftwatch.report.report import Event, Hours, Lengths, PoolWeek

# so many pools are drawn: those with pages and tickets, then the busiest
MOST_DRAWN = 4
# restarts and changes of one pool so close together are one event
_TOGETHER = timedelta(hours=1)
_MOST_EVENTS = 40
_NAMED = 2  # servers of an event; more are counted


def pool_rows(material: Material) -> tuple[PoolWeek, ...]:
    """A row a pool, those with most pages and tickets first, then the busiest."""
    told = Counter(one.pool for one in of_week(material) if one.severity != "notice")
    busy = material.cells.group_by("pool").agg(pl.col("generation_tokens_total").sum())
    ordered = sorted(
        busy.drop_nulls("pool").iter_rows(), key=lambda row: (-told[row[0]], -(row[1] or 0), row[0])
    )
    return tuple(
        _pool(material, name, is_drawn=number < MOST_DRAWN)
        for number, (name, _) in enumerate(ordered)
    )


def _pool(material: Material, name: str, *, is_drawn: bool) -> PoolWeek:
    cells, slo = of_pool(material, name), material.slos.get(name, Slo())
    usual, (prompts, generations) = material.usual.get(name), pool_lengths(material, name)
    return PoolWeek(
        pool=name,
        servers=cells.select("instance", "engine").n_unique(),
        ttft_seconds=slo.ttft_seconds,
        tpot_seconds=slo.tpot_seconds,
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
        part.group_by("instance", "engine").agg(pl.col("speed_at_equal_load_ratio").mean())
        for part in parts
    ]
    prompts, generations = (
        hourly(stem, cells, one.usual or one.mean) for stem, one in zip(STEMS, lengths, strict=True)
    )
    events = [*_changes(material, pool), *_restarts(cells)]
    return Hours(
        requests=tuple(total(part, "ttft_seconds_count") for part in parts),
        missed_low=tuple(one.low for one in late),
        missed_high=tuple(one.high for one in late),
        speed=tuple(_float(one["speed_at_equal_load_ratio"].median()) for one in speeds),
        slowest=tuple(_float(one["speed_at_equal_load_ratio"].min()) for one in speeds),
        prompts=tuple(prompts.get(at) for at in every),
        generations=tuple(generations.get(at) for at in every),
        events=tuple(sorted(events, key=lambda one: one.at)[:_MOST_EVENTS]),
    )


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _changes(material: Material, pool: str) -> Iterator[Event]:
    found: dict[str, list[tuple[datetime, str]]] = {}
    for one in material.verifications:
        if one.pool == pool and material.since <= one.change.at < material.until:
            name = TargetKey(one.instance, one.engine).text
            found.setdefault(done_text([one]), []).append((one.change.at, name))
    for text, changed in found.items():
        for at, servers in _grouped(changed):
            yield Event(at=at, what=f"{servers}: {text}")


def _restarts(cells: pl.DataFrame) -> Iterator[Event]:
    again = cells.filter(pl.col("restarted").fill_null(False)).select("instance", "engine", "end")
    found = [(end - CELL, TargetKey(i, e).text) for i, e, end in again.iter_rows()]
    for at, servers in _grouped(found):
        yield Event(at=at, what=f"{servers} restarted")


def _grouped(found: Iterable[tuple[datetime, str]]) -> Iterator[tuple[datetime, str]]:
    """When each group of events began, and whose they were."""
    groups: list[list[tuple[datetime, str]]] = []
    for one in sorted(found):
        if groups and one[0] - groups[-1][-1][0] < _TOGETHER:
            groups[-1].append(one)
        else:
            groups.append([one])
    for group in groups:
        servers = list(dict.fromkeys(name for _, name in group))
        text = " and ".join(servers) if len(servers) <= _NAMED else f"{len(servers)} servers"
        yield group[0][0], text
