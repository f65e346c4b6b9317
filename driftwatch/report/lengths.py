"""How long requests of a pool were, and the stretches in which that was far from the usual. Pure.

A drift has one size in a report: the mean of its whole stretch over the usual mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

import polars as pl

from driftwatch.detect.lengths import MOST_GIVEN_UP
from driftwatch.numbers import times
from driftwatch.report.cells import CELL
from driftwatch.report.costs import of_pool
from driftwatch.report.material import Material
from driftwatch.report.report import Lengths, Stretch

HOUR = timedelta(hours=1)
_LASTS = 2 * HOUR  # a shorter drift beside another one has no row of its own
STEMS = ("prompt_tokens", "generation_tokens")
# a mean of fewer requests jumps by itself
_LEAST_REQUESTS = 30
# lengths of an hour that are so far from the usual ones are worth a sentence
_FAR = math.log(1.25)


@dataclass(frozen=True, slots=True)
class Drift:
    """Lengths that are far from the usual ones, over a time in which the same ones are."""

    text: str  # prompts ×2.3; generations ×1.7 and prompts ×1.5
    stretch: Stretch
    follows: bool  # another one
    is_followed: bool  # by another one

    def holds(self) -> pl.Expr:
        """Whether a cell is no other drift's."""
        end, own = pl.col("end"), self.stretch
        return ~((self.follows & (end <= own.start)) | (self.is_followed & (end > own.end)))


def hour_of() -> pl.Expr:
    """The start of the hour that a cell lies in."""
    return (pl.col("end") - pl.duration(microseconds=1)).dt.truncate("1h")


def pool_lengths(material: Material, pool: str) -> tuple[Lengths, Lengths]:
    """Prompts and generations of a pool's week."""
    cells, usual = of_pool(material, pool), material.usual.get(pool)
    values = {} if usual is None else usual.values
    prompts, generations = (_lengths(s, cells, values.get(f"{s}_mean")) for s in STEMS)
    return prompts, generations


def drifts_of(material: Material, pool: str, start: datetime, end: datetime) -> list[Drift]:
    """The drifts of a pool's lengths in a stretch, by time: of prompts and of generations the
    largest one, of the size that the pool's row has; cut where the other one begins or ends.
    """
    every = [
        (f"{stem.removesuffix('_tokens')}s {times(one.ratio)}", one)
        for stem, lengths in zip(STEMS, pool_lengths(material, pool), strict=True)
        for one in lengths.stretches
    ]
    every.sort(key=lambda pair: -abs(math.log(pair[1].ratio)))
    found = next((pair for pair in every if pair[1].start < end and pair[1].end > start), None)
    if found is None:
        return []
    text, largest = found
    beside = [
        (words, one)
        for words, one in every
        if words.split()[0] != text.split()[0]
        and min(one.end, largest.end) - max(one.start, largest.start) >= _LASTS
    ]
    edges = {at for _, one in beside for at in (one.start, one.end)}
    cuts = [at for at in sorted(edges) if largest.start + HOUR < at < largest.end - HOUR]
    drifts = []
    for first, last in pairwise([largest.start, *cuts, largest.end]):
        also = [
            words for words, one in beside if one.start - HOUR < first and one.end + HOUR > last
        ]
        stretch = largest.model_copy(update={"start": first, "end": last})
        whole = " and ".join([text, *also])
        drifts.append(Drift(whole, stretch, first > largest.start, last < largest.end))
    return [one for one in drifts if one.stretch.start < end and one.stretch.end > start]


def _lengths(stem: str, cells: pl.DataFrame, usual: float | None) -> Lengths:
    """The lengths of a pool's cells beside the usual mean; None = there is none."""
    n = float(cells[f"{stem}_count"].sum())
    mean = float(cells[f"{stem}_sum"].sum()) / n if n else None
    far = _far(_parts(stem, cells), usual) if usual and len(cells) else []
    return Lengths(mean=mean, n=n or None, usual=usual, stretches=tuple(far))


def hourly(stem: str, cells: pl.DataFrame, usual: float | None) -> dict[datetime, float]:
    """Hour → its mean over a length; without hours of few requests, and of those cut short."""
    if not usual:
        return {}
    hours = _hours(_parts(stem, cells).filter(~pl.col("is_cut")))
    known = hours.filter((pl.col("n") >= _LEAST_REQUESTS) & (pl.col("tokens") > 0))
    return {at: tokens / n / usual for at, n, tokens in known.iter_rows()}


def _parts(stem: str, cells: pl.DataFrame) -> pl.DataFrame:
    """Ten minutes of a pool: end, n, tokens, begun, given_up, is_cut.

    Clients that give up many requests give up long answers first: those that finish are short.
    """
    is_cut = pl.lit(value=False)
    if stem == "generation_tokens":
        is_cut = pl.col("given_up") > MOST_GIVEN_UP * pl.col("begun")
    return (
        cells.group_by("end")
        .agg(
            n=pl.col(f"{stem}_count").sum(),
            tokens=pl.col(f"{stem}_sum").sum(),
            begun=pl.col("ttft_seconds_count").sum(),
            given_up=pl.col("given_up_requests").sum(),
        )
        .with_columns(is_cut=is_cut)
        .sort("end")
    )


def _hours(parts: pl.DataFrame) -> pl.DataFrame:
    return parts.group_by(hour_of().alias("at")).agg(pl.col("n", "tokens").sum()).sort("at")


def _far(parts: pl.DataFrame, usual: float) -> list[Stretch]:
    """Runs of hours with means far above, or far below, the usual one; the farthest first."""
    log = (pl.col("tokens") / pl.col("n") / usual).log()
    # 1 and -1: far above and below
    is_far = (pl.col("n") >= _LEAST_REQUESTS) & (log.abs() >= _FAR)
    side = pl.when(is_far).then(log.sign()).fill_null(0)
    is_next = (side == side.shift(1)) & (pl.col("at").diff() == HOUR)
    whole = parts.filter(~pl.col("is_cut"))
    runs = (
        _hours(whole)
        .with_columns(side=side, run=(~is_next).fill_null(value=True).cum_sum())
        .filter(pl.col("side") != 0)
        .group_by("run", maintain_order=True)
        .agg(pl.col("at").first(), pl.col("at").last().alias("last"), pl.col("n", "tokens").sum())
        .with_columns(log=log)
        .sort(log.abs() * pl.col("n"), descending=True, maintain_order=True)
    )
    found = []
    for first, last, middle in runs.select("at", "last", "log").iter_rows():
        # ten minutes at its edges belong to it where they are nearer to it than to the usual mean
        near = whole.filter(
            pl.col("end").is_between(first - HOUR, last + 2 * HOUR, closed="right")
            & (pl.col("n") > 0)
            & (log / middle >= 0.5)
        )
        if len(near):
            mean = float(near["tokens"].sum()) / float(near["n"].sum())
            start, end = near["end"][0] - CELL, near["end"][-1]
            found.append(Stretch(start=start, end=end, ratio=mean / usual, mean=mean))
    return found
