"""BLIND: what driftwatch could have missed, and in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.model import TargetKey
from driftwatch.numbers import clean, duration, percent, plural
from driftwatch.report.cells import CELL, MINUTE_SECONDS, REASONS
from driftwatch.report.lengths import STEMS
from driftwatch.report.material import Material
from driftwatch.report.report import Blind, Unjudged

_MOST_NAMED = 3  # servers; more are counted
_MOST_ALERTS = 6
# a doubling of lengths is what the reports promise to show
_DOUBLED = 2.0
# a slow engine without a verdict for less than that is found after it
_LONG = timedelta(hours=1)
_IDLE = "idle"


def blind(material: Material) -> Blind:
    """Server-minutes without a verdict on the engine, by reason; what could have been missed.

    Where nobody watched, the servers that were there before and after count.
    """
    cells = material.cells
    seconds = {reason: float(cells[reason].sum()) for reason in REASONS}
    ends = cells["end"].unique().sort().to_list()
    gaps = [(a, b - CELL) for a, b in pairwise(ends) if b - a > CELL]
    servers = cells.group_by(KEY).agg(
        first=pl.col("end").min(),
        last=pl.col("end").max(),
        unseen=pl.any_horizontal(
            (pl.col(f"{stem}_usual_ratio").drop_nulls().last() > _DOUBLED).fill_null(True)
            for stem in STEMS
        ),
    )
    unwatched = sum(
        servers.filter((pl.col("first") <= a) & (pl.col("last") > b)).height
        * (b - a).total_seconds()
        for a, b in gaps
    )
    seconds["no data"] += unwatched
    whole = float(cells["seconds"].sum()) + unwatched
    unseen = servers.filter("unseen").select(KEY).sort(KEY)
    return Blind(
        server_minutes=whole / MINUTE_SECONDS,
        not_judged_ratio=sum(seconds.values()) / whole if whole else None,
        by_reason={r: s / whole for r, s in seconds.items() if s and whole},
        longest_gap_hours=max((b - a for a, b in gaps), default=timedelta(0)) / timedelta(hours=1),
        unjudged=_unjudged(cells),
        could_not_fire=tuple(material.could_not_fire),
        doubled_lengths_unseen=tuple(TargetKey(*key).text for key in unseen.iter_rows()),
    )


def _unjudged(cells: pl.DataFrame) -> tuple[Unjudged, ...]:
    """Servers with their longest stretch under load without a verdict on speed, longest first.

    An idle engine serves nobody, so that nothing of it is missed.
    """
    reasons = [name for name in REASONS if name != _IDLE]
    is_blind = pl.sum_horizontal(reasons) * 2 > pl.col("seconds")
    is_next = is_blind.shift(1).over(KEY) & (pl.col("end").diff().over(KEY) == CELL)
    runs = (
        cells.sort(*KEY, "end")
        .with_columns(run=(~is_next.fill_null(value=False)).cum_sum(), is_blind=is_blind)
        .filter("is_blind")
        .group_by(*KEY, "run", maintain_order=True)
        .agg(pl.len(), pl.col(reasons).sum())
        .sort("len", descending=True, maintain_order=True)
        .unique(KEY, keep="first", maintain_order=True)
        .filter(pl.col("len") * CELL.total_seconds() >= _LONG.total_seconds())
    )
    return tuple(
        Unjudged(
            server=TargetKey(row["instance"], row["engine"]).text,
            hours=row["len"] * CELL / timedelta(hours=1),
            reason=max(reasons, key=lambda name: row[name]),
        )
        for row in runs.iter_rows(named=True)
    )


def blind_texts(blind: Blind, servers: int) -> list[str]:
    """What could have been missed, on which of the servers; a short line where that is nothing."""
    if blind.not_judged_ratio is None:
        return ["no minute of the week is stored"]
    texts = []
    if blind.unjudged:
        longest = blind.unjudged[0]
        for_long = f"up to {duration(longest.hours * 3600)} at a stretch ({longest.reason})"
        where = _servers([one.server for one in blind.unjudged], servers)
        texts.append(f"a slower engine would go unnoticed on {where}: {for_long}")
    if silent := blind.could_not_fire:
        more = len(silent) - _MOST_ALERTS
        named = ", ".join(clean(name) for name in silent[:_MOST_ALERTS])
        named += f" and {more} more" if more > 0 else ""
        texts.append(f"could not fire for want of data: {named}")
    if unseen := blind.doubled_lengths_unseen:
        texts.append(f"lengths ×2 would go unnoticed on {_servers(unseen, servers)}")
    judged = f"speed judged in {percent(1 - blind.not_judged_ratio)} of server-minutes"
    return texts or [judged]


def _servers(names: Sequence[str], servers: int) -> str:
    """``b:8000, c:8000``, ``12 servers``, ``all 3 servers``."""
    if 1 < len(names) == servers:
        return f"all {servers} servers"
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
