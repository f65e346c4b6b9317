"""What was offered to a server by the minute, and minutes of two stretches with alike traffic.

Arrivals are first tokens plus the growth of the queue. Coarsened exact matching (Iacus, King,
Porro, Political Analysis 20, 2012): offered load (bins of ×1.25) and both mean lengths (×1.32 =
1.15²) are cut into bins whose middle is the later stretch's median; minutes of both stretches in
one cell are compared, the others are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from driftwatch.arrays import Floats, Integers

# A minute that was hardly observed says little of its load.
LEAST_SECONDS = 30.0
# After a start: the first minutes compile, capture graphs and fill an empty prefix cache.
WARM_UP = timedelta(minutes=2)
# What waited while the server was down has mostly been served by then; what waits later is load.
LONGEST_DRAIN = timedelta(minutes=10)
DRAINED_WAITING_REQUESTS = 1.0
# Requests waited in most of the scrapes: what was served is not what was offered.
SATURATED_WAITING_REQUESTS = 1.0
# A queue is made by the load of the minutes before: two minutes of one load, one at a peak's rise
# and one behind it, are not alike where requests wait.
LOAD_OVER = 20
# A queue outlasts the load that made it. Where what waits began to wait under a load so many times
# as high, the minute's figures are that load's.
CARRIED_FROM = 1.25
# Mean lengths of single minutes are noisy where few requests finish; lengths drift slower.
LENGTHS_OVER = 5


def with_traffic(minutes: pl.DataFrame) -> pl.DataFrame:
    """Minutes with what was offered in them.

    ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, of one target, by end. Returns
    the rows and ``requests_per_second`` (offered; NULL where first tokens were not counted), its
    mean over twenty minutes, the two mean lengths (of five minutes around; NULL without a finished
    request), ``saturated`` and ``carried`` (what waits is left of a higher load).
    """
    half = pl.duration(seconds=90)
    cut = pl.col("restarted").fill_null(False)
    follows = (pl.col("end") - pl.col("end").shift(1) <= half).fill_null(False) & ~cut
    followed = follows.shift(-1).fill_null(False)
    waiting = pl.col("waiting_requests")
    # the mean of two neighbouring minutes' means stands for the queue at the minute between them
    begins = pl.when(follows).then((waiting + waiting.shift(1)) / 2).otherwise(waiting)
    ends = pl.when(followed).then((waiting + waiting.shift(-1)) / 2).otherwise(waiting)
    grown = (ends - begins).fill_null(0.0)
    arrived = (pl.col("ttft_seconds_count") + grown).clip(lower_bound=0.0)
    run = (~follows).cum_sum().alias("run")
    return (
        minutes.with_columns(
            requests_per_second=pl.when(pl.col("duration_seconds") > 0).then(
                arrived / pl.col("duration_seconds")
            ),
            saturated=(waiting >= SATURATED_WAITING_REQUESTS).fill_null(False),
        )
        .with_columns(run)
        .with_columns(
            recent_requests_per_second=pl.col("requests_per_second")
            .rolling_mean(LOAD_OVER, min_samples=1)
            .over("run")
        )
        .with_columns(carried=_carried())
        .with_columns(_mean_length("prompt_tokens"), _mean_length("generation_tokens"))
        .drop("run")
    )


def _carried() -> pl.Expr:
    """Requests wait, and did so since a load that was far higher."""
    since = (~pl.col("saturated")).cum_sum().over("run")
    load = pl.col("recent_requests_per_second")
    return pl.col("saturated") & (load.cum_max().over("run", since) >= CARRIED_FROM * load)


def _mean_length(name: str) -> pl.Expr:
    """Tokens of a request, over the finished ones of the minutes around; NULL where it says 0."""
    total, finished = (
        pl.col(f"{name}_{part}")
        .fill_null(0.0)
        .rolling_sum(LENGTHS_OVER, min_samples=1, center=True)
        .over("run")
        for part in ("sum", "count")
    )
    return pl.when((finished > 0) & (total > 0)).then(total / finished).alias(f"{name}_mean")


def before_change(minutes: pl.DataFrame, at: datetime, since: datetime) -> pl.DataFrame:
    """Minutes of the server as it was, back to ``since`` or to the change before this one.

    ``minutes``: from :func:`with_traffic`.
    """
    mine = minutes.filter(pl.col("end") > since, pl.col("end") < at)
    changed = pl.col("configuration_changed").fill_null(False) | pl.col(
        "release_changed"
    ).fill_null(False)
    last = mine.filter(changed)["end"].max()
    if isinstance(last, datetime):
        mine = mine.filter(pl.col("end") > last)
    return comparable(mine)


def after_change(minutes: pl.DataFrame, at: datetime, until: datetime) -> pl.DataFrame:
    """Minutes of the server as it is, without its warm-up and the backlog's drain.

    ``minutes``: from :func:`with_traffic`.
    """
    mine = minutes.filter(pl.col("end") > at, pl.col("end") <= until)
    return comparable(mine.filter(pl.col("end") > settled_at(mine, at)))


def settled_at(after: pl.DataFrame, at: datetime) -> datetime:
    """When warm-up and drain of a start are over.

    The drain ends with the first minute in which hardly a request waits, or after
    :data:`LONGEST_DRAIN`: what waits then is load that the server does not carry.
    """
    warm = at + WARM_UP
    early = after.filter(pl.col("end") > at, pl.col("end") <= at + LONGEST_DRAIN)
    idle = early.filter(pl.col("waiting_requests").fill_null(0.0) < DRAINED_WAITING_REQUESTS)["end"]
    first = idle.min()
    if isinstance(first, datetime):
        # the minute that empties the queue still served what had waited
        return warm if first == early["end"].min() else max(warm, first)
    return at + LONGEST_DRAIN if len(early) else warm


def comparable(minutes: pl.DataFrame) -> pl.DataFrame:
    """Those observed for long enough that served what was asked in them, and saw no restart."""
    return minutes.filter(
        (pl.col("duration_seconds") >= LEAST_SECONDS).fill_null(False),
        ~pl.col("restarted").fill_null(False),
        ~pl.col("configuration_changed").fill_null(False),
        ~pl.col("carried").fill_null(False),
        (pl.col("ttft_seconds_count") > 0).fill_null(False),
        (pl.col("requests_per_second") > 0).fill_null(False),
        pl.col("prompt_tokens_mean").is_not_null(),
        pl.col("generation_tokens_mean").is_not_null(),
    )


LOAD_BIN = 1.25
LENGTH_BIN = 1.15**2
BINS = {
    "requests_per_second": LOAD_BIN,
    "prompt_tokens_mean": LENGTH_BIN,
    "generation_tokens_mean": LENGTH_BIN,
}
LENGTHS = ("prompt_tokens_mean", "generation_tokens_mean")


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Minutes of two stretches in common cells."""

    before: pl.DataFrame
    after: pl.DataFrame
    before_cell: Integers  # [len(before)] number of the cell
    after_cell: Integers  # [len(after)]
    weights: Floats  # [cells] what a cell counts, the same on both sides
    by: tuple[str, ...]

    @property
    def minutes(self) -> tuple[int, int]:
        """How many were matched on either side."""
        return len(self.before), len(self.after)


def matched(
    before: pl.DataFrame, after: pl.DataFrame, by: tuple[str, ...] = tuple(BINS)
) -> Matched:
    """Match two stretches.

    A cell with b and a minutes counts b·a/(b+a) (Cochran's weight: the inverse of the variance of
    the difference where minutes are equally noisy). ``before``: from
    :func:`driftwatch.verify.matching.comparable`; ``by``: names of :data:`BINS`.
    """
    cells_before, cells_after = bins_of(before, after, by), bins_of(after, after, by)
    # a scalar key: the combinations that occur, numbered
    _, numbered = np.unique(
        np.concatenate([cells_before, cells_after]), axis=0, return_inverse=True
    )
    keys = numbered.ravel().astype(np.int64)
    one, other = keys[: len(before)], keys[len(before) :]
    common = np.intersect1d(one, other)
    in_one, in_other = np.isin(one, common), np.isin(other, common)
    one, other = np.searchsorted(common, one[in_one]), np.searchsorted(common, other[in_other])
    b, a = (np.bincount(side, minlength=len(common)).astype(float) for side in (one, other))
    with np.errstate(invalid="ignore"):
        weights: Floats = b * a / (b + a)
    return Matched(
        before=before.filter(pl.Series(in_one, dtype=pl.Boolean)),
        after=after.filter(pl.Series(in_other, dtype=pl.Boolean)),
        before_cell=one.astype(np.int64),
        after_cell=other.astype(np.int64),
        weights=weights,
        by=by,
    )


def bins_of(minutes: pl.DataFrame, after: pl.DataFrame, by: tuple[str, ...]) -> Integers:
    """[minutes, columns] bin numbers of minutes on the grid of a later stretch.

    ``after``: the stretch whose median is the middle of a bin; ``by``: names of :data:`BINS`.
    """
    numbers: list[Integers] = []
    for name in by:
        middle = after[name].log().median()
        width = float(np.log(BINS[name]))
        logs = minutes[name].log().to_numpy()
        numbers.append(np.floor((logs - float(middle or 0.0)) / width + 0.5).astype(np.int64))  # type: ignore[arg-type]
    return np.stack(numbers, axis=1) if len(minutes) else np.zeros((0, len(by)), dtype=np.int64)


def traffic_of(minutes: pl.DataFrame, by: tuple[str, ...]) -> Floats:
    """Logarithms of the matched columns and of the recent load: [minutes, columns]."""
    names = list(by)
    if "requests_per_second" in by:
        names.append("recent_requests_per_second")
    return minutes.select(pl.col(names).log()).to_numpy().astype(np.float64)
