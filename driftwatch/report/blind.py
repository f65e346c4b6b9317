"""BLIND: what driftwatch could have missed, and in words. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from itertools import pairwise

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.model import TargetKey
from driftwatch.numbers import clean, percent, plural
from driftwatch.report.cells import BEYOND, CELL, MINUTE_SECONDS, REASONS
from driftwatch.report.lengths import STEMS
from driftwatch.report.material import Material
from driftwatch.report.report import Blind, Unjudged
from driftwatch.report.week import stretch_text

_MOST_NAMED = 3  # servers or stretches; more are counted
_NEARLY_ALL = 0.95
# a doubling of lengths is what the reports promise to show
_DOUBLED = 2.0
# a slow engine without a verdict for less than that is found after it
_LONG = timedelta(hours=1)
_IDLE = "idle"
UNSEEN = (_NO_DATA, _UNWATCHED) = ("no data", "nobody watched")


def blind(material: Material) -> Blind:
    """Server-minutes without a verdict on the engine, by reason; what could have been missed.

    Where nobody watched, the servers that were there before and after count.
    """
    cells = material.cells
    seconds = {reason: float(cells[reason].sum()) for reason in REASONS}
    ends = cells["end"].unique().sort().to_list()
    gaps = [(a, b - CELL) for a, b in pairwise(ends) if b - a > CELL]
    servers = cells.group_by(KEY).agg(
        pl.col("pool").last(),
        first=pl.col("end").min(),
        last=pl.col("end").max(),
        unseen=pl.any_horizontal(
            (pl.col(f"{stem}_usual_ratio").drop_nulls().last() > _DOUBLED).fill_null(True)
            for stem in STEMS
        ),
    )
    unwatched = [
        Unjudged(pool=pool, servers=names, start=a, end=b, reason=_UNWATCHED)
        for a, b in gaps
        for pool, names in _by_pool(servers.filter(pl.col("first") <= a, pl.col("last") > b))
    ]
    lost = sum(len(one.servers) * (one.end - one.start).total_seconds() for one in unwatched)
    seconds[_NO_DATA] += lost
    whole = float(cells["seconds"].sum()) + lost
    unseen = servers.filter("unseen").select(KEY).sort(KEY)
    # an idle engine serves nobody, so that nothing of it is missed
    judgeable = [name for name in REASONS if name not in (_IDLE, _NO_DATA)]
    stretches = [
        *unwatched,
        *_stretches(cells, [_NO_DATA], CELL),
        *_stretches(cells, judgeable, _LONG),
    ]
    return Blind(
        server_minutes=whole / MINUTE_SECONDS,
        not_judged_ratio=sum(seconds.values()) / whole if whole else None,
        by_reason={r: s / whole for r, s in seconds.items() if s and whole},
        unjudged=tuple(sorted(stretches, key=lambda one: one.start - one.end)),
        doubled_lengths_unseen=tuple(TargetKey(*key).text for key in unseen.iter_rows()),
    )


def _by_pool(servers: pl.DataFrame) -> list[tuple[str, tuple[str, ...]]]:
    """Pool → its servers."""
    pools = servers.sort("pool", *KEY).partition_by("pool", as_dict=True, maintain_order=True)
    return [(str(pool), _names(rows)) for (pool,), rows in pools.items()]


def _names(rows: pl.DataFrame) -> tuple[str, ...]:
    return tuple(TargetKey(*key).text for key in rows.select(KEY).unique().sort(KEY).iter_rows())


def _stretches(cells: pl.DataFrame, reasons: Sequence[str], least: timedelta) -> Iterator[Unjudged]:
    """Stretches of a pool in which any of its servers was not judged for one of these reasons."""
    rows = cells.filter(pl.sum_horizontal(reasons) * 2 > pl.col("seconds")).sort("pool", "end")
    begins = (pl.col("end").diff().over("pool") > CELL).fill_null(value=True)
    numbered = rows.with_columns(run=begins.cum_sum())
    for run in numbered.partition_by("run", maintain_order=True):
        start, end = run["end"][0] - CELL, run["end"][-1]
        if end - start >= least:
            reason = max(reasons, key=lambda name: run[name].sum())
            names = _names(run)
            seconds = float(run.select(pl.sum_horizontal(reasons).sum()).item())
            ratio = seconds / len(names) / (end - start).total_seconds()
            pool = run["pool"][0]
            yield Unjudged(
                pool=pool, servers=names, start=start, end=end, reason=reason, ratio=min(1.0, ratio)
            )


def blind_texts(
    blind: Blind, servers: int, options: str = "", slow: Collection[str] = ()
) -> list[str]:
    """What could have been missed, when and on which servers; a short line where that is nothing.

    ``servers``: how many there are; ``options``: of commands; ``slow``: pools with a slow server,
    of which no baseline can be taken.
    """
    if blind.not_judged_ratio is None:
        return ["no minute of the week is stored"]
    texts = []
    for is_unseen, what in (
        (True, "nothing would have been noticed on"),
        (False, "a slower engine would have gone unnoticed on"),
    ):
        mine = [o for o in blind.unjudged if (o.reason in UNSEEN) == is_unseen]
        named = [where_text(one) for one in mine[:_MOST_NAMED]]
        more = len(mine) - len(named)
        named += [f"{plural(more, 'shorter one')}: --json"] if more else []
        beyond = next((o.pool for o in mine[:_MOST_NAMED] if o.reason == BEYOND), None)
        if beyond is not None:
            command = f"driftwatch baseline accept {clean(beyond)}{options}"
            when = "once its servers have their speed again and" if beyond in slow else "if"
            named.append(f"{when} such load stays, take a new baseline: {command}")
        texts += [f"{what} {'; '.join(named)}"] if named else []
    if unseen := blind.doubled_lengths_unseen:
        all_of = f"all {servers} servers" if 1 < len(unseen) == servers else _servers(unseen)
        texts.append(f"lengths ×2 would go unnoticed on {all_of}")
    judged = f"speed judged in {percent(1 - blind.not_judged_ratio)} of server-minutes"
    return texts or [judged]


def where_text(one: Unjudged) -> str:
    """``b:8000 Wed 18:00–20:00 (idle)``; ``chat-8b (12 servers) Tue 13:00 – Wed 07:00, 62 % of the
    time (load outside the baseline)``.
    """
    when = stretch_text(one.start, one.end).removesuffix(" UTC")
    servers = f"{one.pool} ({plural(len(one.servers), 'server')})"
    if one.ratio < _NEARLY_ALL:
        when += f", {percent(one.ratio)} of the time"
    return f"{clean(one.servers[0] if len(one.servers) == 1 else servers)} {when} ({one.reason})"


def _servers(names: Sequence[str]) -> str:
    """``b:8000, c:8000``, ``12 servers``."""
    named = len(names) <= _MOST_NAMED
    return clean(", ".join(names)) if named else plural(len(names), "server")


def not_judged_text(blind: Blind) -> str:
    """All reasons why speed was not judged, the largest first."""
    if not blind.by_reason:
        return "Speed was judged in every server-minute"
    reasons = sorted(blind.by_reason.items(), key=lambda pair: -pair[1])
    shares = ", ".join(f"{reason} {percent(share)}" for reason, share in reasons)
    whole = percent(blind.not_judged_ratio or 0.0)
    return f"Speed was not judged in {whole} of server-minutes: {shares}"
