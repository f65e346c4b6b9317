"""An engine with several groups of series: which of them is read at which time."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from driftwatch.collect.prometheus.columns import Column, Roster
from driftwatch.collect.prometheus.placement import Placement
from driftwatch.collect.prometheus.query import Labels, Numbers

Bools = npt.NDArray[np.bool_]
_NEVER_READ = np.iinfo(np.int64).max


def places(column: Column, has: Bools, roster: Roster, scraped_as: Mapping[str, Labels]) -> Numbers:
    """Each group's place: of those of one engine the lowest is read.

    That of the scrape whose ``up`` is read; the current name before an old one; then the origin
    with the newest sample, for a restart with other flags or a new pod begins a new series while
    the old one may linger.
    """
    engines, sizes = np.unique(column.engine, return_counts=True)
    contested = np.isin(column.engine, engines[sizes > 1]) & has.any(axis=1)
    oldest, newest = np.argmax(has, axis=1), np.argmax(has[:, ::-1], axis=1)  # from either end

    def order(group: int) -> tuple[bool, float, int, int, str]:
        origin = int(column.origin[group])
        labels = roster.labels(origin)
        scrape = scraped_as.get(labels["instance"], {})
        foreign = any(labels.get(name) != value for name, value in scrape.items())
        text = repr(sorted(labels.items()))
        return foreign, column.rank[group], int(newest[group]), -int(oldest[group]), text

    ordered = sorted(np.nonzero(contested)[0].tolist(), key=order)
    place = np.zeros(len(has), np.int64)
    place[ordered] = np.arange(len(ordered))
    return place


def winners(column: Column, has: Bools, place: Numbers) -> Bools:
    """(groups, times), whether the group is the one that is read."""
    starts, of = _engines(column)
    there = np.where(has, place[:, None], _NEVER_READ)
    best: Bools = has & (there == np.minimum.reduceat(there, starts)[of])
    return best


def clashes(
    column: Column,
    placement: Placement,
    has: Bools,
    wins: Bools,
    place: Numbers,
    there: Bools,
    named: Container[tuple[str, str]],
) -> Iterator[tuple[tuple[str, str], Labels, Labels]]:
    """Engines with two groups of one name at the same time: labels that are read, and are not.

    ``there``: (series, times), whether each of the column's series has a sample; ``named``: engines
    to leave out.
    """
    starts, of = _engines(column)
    rank = np.where(wins, column.rank[:, None], np.inf)
    beaten = has & ~wins & (column.rank[:, None] == np.minimum.reduceat(rank, starts)[of])
    series_of = np.repeat(np.arange(len(has)), np.diff(column.starts, append=len(column.series)))
    variants = placement.variants.labels

    def first(group: int, time: int) -> Labels:
        """One of the group's series, in whatever order they came."""
        indexes = column.series[(series_of == group) & there[:, time]].tolist()
        index = min(
            indexes, key=lambda one: (sorted(variants[placement.variant[one]].items()), one)
        )
        return placement.labels(column.metric, index)

    for number in np.unique(of[beaten.any(axis=1)]).tolist():
        groups = np.nonzero(of == number)[0]
        engine = placement.roster.engines[int(column.engine[groups[0]])]
        if engine in named:
            continue
        time = int(np.argmax(beaten[groups].any(axis=0)))
        winner = groups[wins[groups, time]][0]
        loser = min(groups[beaten[groups, time]], key=lambda group: place[group])
        yield engine, first(winner, time), first(loser, time)


def _engines(column: Column) -> tuple[Numbers, Numbers]:
    """Where each engine's groups begin, and the number of each group's engine among them."""
    new = np.diff(column.engine, prepend=-1) != 0
    return np.nonzero(new)[0], np.cumsum(new) - 1
