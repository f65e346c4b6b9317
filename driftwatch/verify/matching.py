"""The load of a server in each minute, and pairs of minutes of like load around a change.

Every minute after a change is matched with the minutes before it whose offered load and mean
lengths lie within a caliper, the nearer the more (kernel matching: Heckman, Ichimura, Todd, Review
of Economic Studies 65, 1998). A minute without a neighbour is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from driftwatch.arrays import Floats

# A minute that was observed for less gives no reliable load.
LEAST_SECONDS = 30.0
WAITING_REQUESTS = 1.0  # in the mean of a minute: below it there is no queue
# A queue depends on the load of the minutes before, and lengths of single minutes are noisy.
LOAD_MINUTES, QUEUE_MINUTES, LENGTH_MINUTES = 5, 20, 5
# Matched columns, each with the largest factor between two minutes.
ALIKE = {
    "requests_per_second": 1.2,
    "recent_requests_per_second": 1.2,
    "prompt_tokens_mean": 1.25,
    "generation_tokens_mean": 1.25,
}
# A longer wait only shows how long a backlog has grown, and a restart ends any backlog.
LONGEST_WAIT_SECONDS = 60.0
LENGTHS = ("prompt_tokens_mean", "generation_tokens_mean")


def with_traffic(minutes: pl.DataFrame) -> pl.DataFrame:
    """Minutes with the columns of :data:`ALIKE`.

    ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, of one target, by end. Returns
    the rows with offered requests/s (mean of the last five and of twenty minutes; NULL where first
    tokens were not counted), both mean lengths (of five minutes around; NULL without a finished
    request), ``saturated`` (requests waited), ``backlogged`` (they waited for long) and ``carried``
    (the queue began under a higher load, so the minute's figures are that load's).
    """
    follows = pl.col("end") - pl.col("end").shift(1) <= pl.duration(seconds=90)
    follows = follows.fill_null(False) & ~pl.col("restarted").fill_null(False)
    waiting = pl.col("waiting_requests")
    # a minute's queue grows by half the difference of its neighbours' means
    grown = ((waiting.shift(-1) - waiting.shift(1)) / 2).over("run").fill_null(0.0)
    arrived = (pl.col("ttft_seconds_count") + grown).clip(lower_bound=0.0)
    offered = pl.when(pl.col("duration_seconds") > 0).then(arrived / pl.col("duration_seconds"))
    rows = minutes.with_columns((~follows).cum_sum().alias("run")).with_columns(
        offered.alias("offered"), saturated=(waiting >= WAITING_REQUESTS).fill_null(False)
    )
    rows = rows.with_columns(
        _mean_load(LOAD_MINUTES).alias("requests_per_second"),
        _mean_load(QUEUE_MINUTES).alias("recent_requests_per_second"),
        _mean_length("prompt_tokens"),
        _mean_length("generation_tokens"),
    )
    load, since = pl.col("requests_per_second"), (~pl.col("saturated")).cum_sum().over("run")
    higher = load.cum_max().over("run", since) > ALIKE["requests_per_second"] * load
    wait = waiting / pl.col("recent_requests_per_second")  # Little's law
    return rows.with_columns(
        carried=(pl.col("saturated") & higher).fill_null(False),
        backlogged=(wait > LONGEST_WAIT_SECONDS).fill_null(False),
    ).drop("run", "offered")


def _mean_load(over: int) -> pl.Expr:
    return pl.col("offered").rolling_mean(over, min_samples=1).over("run")


def _mean_length(name: str) -> pl.Expr:
    total, finished = (
        pl.col(f"{name}_{part}")
        .fill_null(0.0)
        .rolling_sum(LENGTH_MINUTES, min_samples=1, center=True)
        .over("run")
        for part in ("sum", "count")
    )
    return pl.when((finished > 0) & (total > 0)).then(total / finished).alias(f"{name}_mean")


def comparable(minutes: pl.DataFrame) -> pl.DataFrame:
    """Minutes observed for long enough, with load and lengths of their own, and no restart."""
    flags = ("restarted", "configuration_changed", "carried")
    return minutes.filter(
        (pl.col("duration_seconds") >= LEAST_SECONDS).fill_null(False),
        (pl.col("ttft_seconds_count") > 0).fill_null(False),
        *((pl.col(name) > 0).fill_null(False) for name in ALIKE),
        *(~pl.col(name).fill_null(False) for name in flags),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Minutes after a change, each with its neighbours before it."""

    before: pl.DataFrame  # minutes with a neighbour after the change
    after: pl.DataFrame  # minutes with a neighbour before it
    pairs: Any  # csr_matrix, [after, before] nearness of neighbours: 1 = equal, 0 = at the caliper
    traffic: tuple[Floats, Floats]  # [before, columns], [after, columns] logarithms of ALIKE

    @property
    def minutes(self) -> tuple[int, int]:
        """How many were matched on either side."""
        return len(self.before), len(self.after)


def matched(before: pl.DataFrame, after: pl.DataFrame, by: Sequence[str] = tuple(ALIKE)) -> Matched:
    """Match two stretches.

    ``before``, ``after``: from :func:`comparable`; ``by``: names of :data:`ALIKE`.
    """
    from scipy.sparse import csr_matrix  # loaded where it is needed
    from scipy.spatial import cKDTree

    scale = np.log([ALIKE[name] for name in by])
    one, other = (side.select(pl.col(by).log()).to_numpy() for side in (before, after))
    pairs = csr_matrix((len(other), len(one)))
    if all(pairs.shape):
        trees = (cKDTree(side / scale) for side in (other, one))
        near = next(trees).sparse_distance_matrix(next(trees), 1.0, np.inf, "coo_matrix")
        near.data = 1.0 - near.data  # distance → nearness
        pairs = near.tocsr()
    b, a = (np.flatnonzero(np.asarray(pairs.sum(axis=axis)).ravel()) for axis in (0, 1))
    return Matched(before[b], after[a], pairs[a][:, b], (one[b], other[a]))
