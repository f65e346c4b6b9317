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
from driftwatch.report.material import Material
from driftwatch.report.moved import done_text
from driftwatch.report.report import Event, Hours, Lengths, PoolWeek, Stretch

HOUR = timedelta(hours=1)
# so many pools are drawn: those with pages and tickets, then the busiest
MOST_DRAWN = 4
STEMS = ("prompt_tokens", "generation_tokens")
# a mean of fewer requests jumps by itself
_LEAST_REQUESTS = 30
# lengths of an hour that are so far from the usual ones are worth a sentence
_FAR = math.log(1.25)
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
    usual = material.usual.get(name)
    means = {stem: None if usual is None else usual.values.get(f"{stem}_mean") for stem in STEMS}
    prompts, generations = (_lengths(stem, cells, means[stem]) for stem in STEMS)
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
    hour = _hour().alias("hour")
    by_hour = {key[0]: part for key, part in cells.group_by(hour, maintain_order=True)}
    count = math.ceil((material.until - material.since) / HOUR)
    none = cells.clear()
    parts = [by_hour.get(material.since + HOUR * number, none) for number in range(count)]
    late = [missed(material, part) for part in parts]
    speeds = [
        part.group_by("instance", "engine").agg(pl.col("speed_at_equal_load_ratio").mean())
        for part in parts
    ]
    events = [*_changes(material, pool), *_restarts(cells)]
    return Hours(
        requests=tuple(total(part, "ttft_seconds_count") for part in parts),
        missed_low=tuple(one.low for one in late),
        missed_high=tuple(one.high for one in late),
        speed=tuple(_float(one["speed_at_equal_load_ratio"].median()) for one in speeds),
        slowest=tuple(_float(one["speed_at_equal_load_ratio"].min()) for one in speeds),
        prompts=tuple(_ratio(STEMS[0], part, lengths[0]) for part in parts),
        generations=tuple(_ratio(STEMS[1], part, lengths[1]) for part in parts),
        events=tuple(sorted(events, key=lambda one: one.at)[:_MOST_EVENTS]),
    )


def _hour() -> pl.Expr:
    return (pl.col("end") - pl.duration(microseconds=1)).dt.truncate("1h")


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _ratio(stem: str, cells: pl.DataFrame, lengths: Lengths) -> float | None:
    n, tokens = total(cells, f"{stem}_count"), total(cells, f"{stem}_sum")
    usual = lengths.usual or lengths.mean
    if not n or not tokens or not usual or n < _LEAST_REQUESTS:
        return None
    return tokens / n / usual


def _lengths(stem: str, cells: pl.DataFrame, usual: float | None) -> Lengths:
    n = total(cells, f"{stem}_count")
    return Lengths(
        mean=float(cells[f"{stem}_sum"].sum()) / n if n else None,
        n=n,
        usual=usual,
        stretch=_stretch(stem, cells, usual) if usual else None,
    )


def _stretch(stem: str, cells: pl.DataFrame, usual: float) -> Stretch | None:
    """The hours next to each other whose mean is farthest from the usual one, to ten minutes."""
    parts = cells.group_by("end").agg(
        n=pl.col(f"{stem}_count").sum(), tokens=pl.col(f"{stem}_sum").sum()
    )
    log = (pl.col("tokens") / pl.col("n") / usual).log()
    enough = pl.col("n") >= _LEAST_REQUESTS
    hours = parts.group_by(_hour().alias("at")).agg(pl.col("n", "tokens").sum()).sort("at")
    # 1 and -1: far above and below; hours of one side next to each other are one run
    side = pl.when(enough & (log.abs() >= _FAR)).then(log.sign()).fill_null(0)
    far = (
        hours.with_columns(side=side)
        .with_columns(
            run=((side != side.shift(1)) | (pl.col("at").diff() != HOUR)).fill_null(True).cum_sum()
        )
        .filter(pl.col("side") != 0)
        .group_by("run", maintain_order=True)
        .agg(pl.col("at").first(), pl.col("at").last().alias("last"), pl.col("n", "tokens").sum())
        .with_columns(log=log)
        .sort(log.abs() * pl.col("n"), maintain_order=True)
    )
    if far.is_empty():
        return None
    first, last, middle = far.select("at", "last", "log").row(-1)
    # ten minutes at its edges belong to it where they are nearer to it than to the usual mean
    near = parts.filter(
        pl.col("end").is_between(first - HOUR, last + 2 * HOUR, closed="right")
        & (pl.col("n") > 0)
        & (log / middle >= 0.5)
    ).sort("end")
    if near.is_empty():
        return None
    mean = float(near["tokens"].sum()) / float(near["n"].sum())
    return Stretch(start=near["end"][0] - CELL, end=near["end"][-1], ratio=mean / usual, mean=mean)


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
